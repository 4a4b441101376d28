# SPDX-License-Identifier: Apache-2.0
#
# STRATA_CHECKS
#
# --enable-werror, --enable-asan, --enable-ubsan, --enable-coverage: flags for our own objects, kept out of the user's CFLAGS.
# Sets CHECK_CFLAGS, NVCC_WARNED (the command that decides what a warning of nvcc's is) and MODULE_DEFS (-z defs; clang's sanitizers resolve their runtime in the program only and fail with it),
# and strata_checks_result for the summary.
AC_DEFUN([STRATA_CHECKS], [
AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [treat warnings as errors])], [], [enable_werror=no])
AC_ARG_ENABLE([asan], [AS_HELP_STRING([--enable-asan], [build with the address sanitizer])], [], [enable_asan=no])
AC_ARG_ENABLE([ubsan], [AS_HELP_STRING([--enable-ubsan], [build with the undefined-behaviour sanitizer])], [],
  [enable_ubsan=no])
AC_ARG_ENABLE([coverage], [AS_HELP_STRING([--enable-coverage], [count which lines are executed, for make coverage])], [],
  [enable_coverage=no])
CHECK_CFLAGS=
NVCC_WARNED=true
strata_checks_result=
strata_sanitize=
AS_IF([test "x$enable_werror" != xno], [CHECK_CFLAGS=-Werror NVCC_WARNED=false strata_checks_result=werror])
AS_IF([test "x$enable_asan" != xno], [AS_VAR_APPEND([strata_sanitize], [" -fsanitize=address -fno-omit-frame-pointer"])
  AS_VAR_APPEND([strata_checks_result], [" asan"])])
AS_IF([test "x$enable_ubsan" != xno], [AS_VAR_APPEND([strata_sanitize], [" -fsanitize=undefined -fno-sanitize-recover=undefined"])
  AS_VAR_APPEND([strata_checks_result], [" ubsan"])])
AS_IF([test "x$enable_coverage" != xno], [AS_VAR_APPEND([CHECK_CFLAGS], [" --coverage"])
  AS_VAR_APPEND([strata_checks_result], [" coverage"])])
AS_IF([test -z "$strata_checks_result"], [strata_checks_result=none])

MODULE_DEFS=-Wl,-z,defs
AS_IF([test -n "$strata_sanitize"],
  [AS_VAR_APPEND([CHECK_CFLAGS], ["$strata_sanitize"])
   strata_save_CFLAGS=$CFLAGS
   CFLAGS="$CFLAGS$strata_sanitize"
   AC_MSG_CHECKING([whether $CC links with$strata_sanitize])
   AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
     [AC_MSG_RESULT([no])
      AC_MSG_ERROR([$CC has no runtime for the sanitizers (on Debian, clang's is in libclang-rt-14-dev)])])
   AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [[#ifdef __clang__
#error clang
#endif]])], [], [MODULE_DEFS=])
   CFLAGS=$strata_save_CFLAGS])
AC_SUBST([CHECK_CFLAGS])
AC_SUBST([NVCC_WARNED])
AC_SUBST([MODULE_DEFS])
])
