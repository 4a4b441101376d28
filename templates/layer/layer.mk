# make: compile. make check: gradients. make install-user: for all specs of this user.
CFLAGS ?= -O2 -g
STRATA ?= strata
user = $(or $(XDG_DATA_HOME),$(HOME)/.local/share)/strata

@NAME@.so: @NAME@.c
	$(CC) $(CFLAGS) -std=c11 -Wall -Wextra -Wno-unused-parameter $$(pkg-config --cflags strata) -shared -fPIC $< -o $@
check: @NAME@.so
	$(STRATA) selftest spec.ini
install-user: @NAME@.so
	install -d $(user) && install -m 644 @NAME@.so @NAME@.ini $(user)
.PHONY: check install-user
