# SPDX-License-Identifier: Apache-2.0
# Fuzz targets for libFuzzer: built by clang beside the ordinary objects, into the folder fuzz/ of the build.
#
#   make fuzz FUZZ_SECONDS=30 FUZZ_JOBS=2
FUZZ_CC = clang
FUZZ_SECONDS = 30
FUZZ_JOBS = 1
FUZZ_CFLAGS = -std=gnu11 -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
  -fno-sanitize-recover=undefined
FUZZ_TARGETS = spec safetensors shards tokenizer image label
fuzz_rooms = $(filter framework/base/%.c framework/spec/%.c framework/data/tokenizer%.c framework/data/image%.c \
  framework/checkpoint/safetensors%.c framework/checkpoint/shards.c,$(framework_libstrata_la_SOURCES)) \
  plugins/datasets/cord_v2/label.c
fuzz_objects = $(fuzz_rooms:%.c=fuzz/obj/%.o)
fuzz_programs = $(FUZZ_TARGETS:%=fuzz/fuzz_%)

fuzz/obj/%.o: $(srcdir)/%.c
	@$(MKDIR_P) $(@D)
	$(AM_V_CC)$(FUZZ_CC) $(DEFS) -I. $(framework_libstrata_la_CPPFLAGS) $(FUZZ_CFLAGS) -MMD -MP -c -o $@ $<

fuzz/fuzz_%: fuzz/obj/tests/fuzz/fuzz_%.o $(fuzz_objects)
	$(AM_V_CCLD)$(FUZZ_CC) $(FUZZ_CFLAGS) -fsanitize=fuzzer -o $@ $^ $(framework_libstrata_la_LIBADD) $(LIBS) -lpthread

fuzz-build: $(fuzz_programs)

fuzz: fuzz-build
	ST_SRCDIR='$(abs_top_srcdir)' $(SHELL) $(srcdir)/tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ_JOBS) $(FUZZ_TARGETS)

clean-local: fuzz-clean
fuzz-clean:
	-rm -rf fuzz

.PHONY: fuzz fuzz-build fuzz-clean
.SECONDARY: $(fuzz_objects) $(FUZZ_TARGETS:%=fuzz/obj/tests/fuzz/fuzz_%.o)
-include $(fuzz_objects:.o=.d) $(FUZZ_TARGETS:%=fuzz/obj/tests/fuzz/fuzz_%.d)

EXTRA_DIST += tools/fuzz_long.sh tests/fuzz/fuzz.h tests/fuzz/run.sh tests/fuzz/seeds.sh $(FUZZ_TARGETS:%=tests/fuzz/fuzz_%.c)
