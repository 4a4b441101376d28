# SPDX-License-Identifier: Apache-2.0
train_scripts = tests/train/repeat.sh tests/train/eval.sh tests/train/refuse.sh tests/train/cord.sh tests/train/bad.sh \
  tests/train/places.sh tests/train/timing.sh tests/train/lock.sh tests/train/memory.sh tests/train/mixture.sh \
  tests/train/muon.sh tests/train/narrow.sh tests/train/bench.sh
TESTS += $(train_scripts)
installed_specs = tests/train/installed.sh
EXTRA_DIST += $(train_scripts) $(installed_specs) tests/train/train.sh tests/train/micro.ini
