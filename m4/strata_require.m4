# SPDX-License-Identifier: Apache-2.0
#
# STRATA_REQUIRE(VAR, pkg-config module, Debian package)
# STRATA_REQUIRE_END
#
# REQUIRE sets VAR_CFLAGS and VAR_LIBS. What is missing is collected, and END reports all of it at once, with the command that
# installs it on Debian.
AC_DEFUN([STRATA_REQUIRE], [
PKG_CHECK_MODULES([$1], [$2], [], [
  AS_VAR_APPEND([strata_missing], ["
    $2"])
  AS_VAR_APPEND([strata_missing_packages], [" $3"])])
])

AC_DEFUN([STRATA_REQUIRE_END], [
AS_IF([test -n "$strata_missing"], [AC_MSG_ERROR([these libraries are missing (as pkg-config calls them):$strata_missing
  On Debian: apt-get install$strata_missing_packages])])
])
