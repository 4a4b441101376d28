# SPDX-License-Identifier: Apache-2.0
#
# STRATA_CHECK_CUDA
#
# Looks for the CUDA compiler, runtime and cuBLAS, for NCCL, and for the headers of cuDNN. All are optional; what was asked for by name and cannot be
# used is an error. Nothing here touches the flags of C objects: whoever builds kernels uses
#
#   NVCC, NVCCFLAGS              the compiler and the user's flags for it (both precious)
#   CUDA_GENCODE                 -gencode options for --with-cuda-arch
#   CUDA_ARCHS, CUDA_VERSION     what kernel modules say of themselves: "sm_80,compute_80,sm_90a", "13.0"
#   CUDA_PTXAS                   what the assembler tells: for 90a alone, whose registers kernels are fitted to, spills are warned of
#   CUDA_CPPFLAGS, CUDA_LDFLAGS  where headers and libraries are
#   CUDA_LIBS, NCCL_LIBS         runtime with cuBLAS; NCCL (empty without)
#   CUDNN_CPPFLAGS               -DCUDA_WITH_CUDNN or nothing: its library is opened at run time, so nothing is linked
#   HAVE_CUDA, HAVE_CUDNN, HAVE_NCCL  Automake conditionals
#
# For the summary: strata_cuda_result, strata_cudnn_result and strata_nccl_result, each "no (why)" or what was found.
AC_DEFUN([STRATA_CHECK_CUDA], [
AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [build CUDA kernels, with the toolkit in DIR @<:@default: if nvcc works@:>@])],
  [], [with_cuda=auto])
AC_ARG_WITH([nccl],
  [AS_HELP_STRING([--with-nccl], [build NCCL communication @<:@default: with CUDA, if found@:>@])],
  [], [with_nccl=auto])
AC_ARG_WITH([cudnn],
  [AS_HELP_STRING([--with-cudnn], [build attention by cuDNN, opened at run time @<:@default: with CUDA, if its headers are found@:>@])],
  [], [with_cudnn=auto])
AC_ARG_VAR([NVCC], [CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [flags for the CUDA compiler])

CUDA_CPPFLAGS=
CUDA_LDFLAGS=
CUDA_LIBS=
CUDA_VERSION=
CUDNN_CPPFLAGS=
NCCL_LIBS=
strata_cudnn_result='no (needs CUDA)'
strata_nccl_result='no (needs CUDA)'
AS_IF([test "x$with_cuda" = xno], [strata_cuda_result='no (--without-cuda)'], [_STRATA_FIND_CUDA])
AS_CASE([$with_cuda:$strata_cuda_result],
  [no:*|auto:*], [],
  [*:no*], [AC_MSG_ERROR([--with-cuda=$with_cuda was given, but CUDA cannot be used: $strata_cuda_result
  Name the toolkit's folder (--with-cuda=/usr/local/cuda) or its compiler (NVCC=...); config.log has the failed command.])])
AS_CASE([$with_nccl:$strata_cuda_result],
  [no:*], [strata_nccl_result='no (--without-nccl)'],
  [*:no*], [],
  [_STRATA_FIND_NCCL])
AS_CASE([$with_cudnn:$strata_cuda_result],
  [no:*], [strata_cudnn_result='no (--without-cudnn)'],
  [*:no*], [],
  [_STRATA_FIND_CUDNN])
AS_CASE([$with_cudnn:$strata_cudnn_result],
  [no:*|auto:*], [],
  [*:no*], [AC_MSG_ERROR([--with-cudnn was given, but cuDNN cannot be used: $strata_cudnn_result
  On Debian with NVIDIA's repository: apt-get install libcudnn9-dev-cuda-13])])
AS_CASE([$with_nccl:$strata_nccl_result],
  [no:*|auto:*], [],
  [*:no*], [AC_MSG_ERROR([--with-nccl was given, but NCCL cannot be used: $strata_nccl_result
  On Debian with NVIDIA's repository: apt-get install libnccl-dev])])

AC_SUBST([CUDA_VERSION])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_LDFLAGS])
AC_SUBST([CUDA_LIBS])
AC_SUBST([CUDNN_CPPFLAGS])
AC_SUBST([NCCL_LIBS])
AM_CONDITIONAL([HAVE_CUDA], [test -n "$CUDA_LIBS"])
AM_CONDITIONAL([HAVE_CUDNN], [test -n "$CUDNN_CPPFLAGS"])
AM_CONDITIONAL([HAVE_NCCL], [test -n "$NCCL_LIBS"])
])

# STRATA_CUDA_ARCH
#
# --with-cuda-arch, read ahead of all checks that take time: numbers with an optional letter, separated by commas. NN is machine code for NN, and PTX that later GPUs compile
# when it is loaded; NNa (with all that this one GPU has) and NNf (with what its family has) are machine code alone, since
# such PTX runs nowhere else.
AC_DEFUN([STRATA_CUDA_ARCH], [
AC_ARG_WITH([cuda-arch],
  [AS_HELP_STRING([--with-cuda-arch=LIST], [GPUs: 90a means Hopper alone, 80 Ampere and all later ones @<:@default: 90a@:>@])],
  [], [with_cuda_arch=90a])
CUDA_GENCODE=
CUDA_ARCHS=
AS_CASE([,$with_cuda_arch,],
  [,yes,|,no,|*,,*|*[[!0-9a-z,]]*], [_STRATA_BAD_ARCH([must be a list without spaces])])
for strata_arch in `AS_ECHO(["$with_cuda_arch"]) | tr ',' ' '`; do
  strata_number=`AS_ECHO(["$strata_arch"]) | sed 's/@<:@af@:>@$//'`
  AS_CASE([$strata_number],
    [*[[!0-9]]*], [_STRATA_BAD_ARCH([$strata_arch is no number with an optional a or f behind it])],
    [[[0-9][0-9]|[0-9][0-9][0-9]]], [], [_STRATA_BAD_ARCH([$strata_arch: two or three digits, as in 80 or 100])])
  AS_IF([test "$strata_number" -lt 80], [_STRATA_BAD_ARCH([$strata_arch: the kernels need 80 (Ampere) or later])])
  AS_CASE([,$CUDA_ARCHS,], [*,sm_$strata_arch,*], [_STRATA_BAD_ARCH([$strata_arch stands there twice])])
  strata_code=sm_$strata_arch
  AS_IF([test "$strata_number" = "$strata_arch"], [strata_code="sm_$strata_arch compute_$strata_arch"])
  for strata_one in $strata_code; do
    AS_VAR_APPEND([CUDA_GENCODE], [" -gencode arch=compute_$strata_arch,code=$strata_one"])
    AS_VAR_APPEND([CUDA_ARCHS], ["${CUDA_ARCHS:+,}$strata_one"])
  done
done
AS_IF([test "$CUDA_ARCHS" = sm_90a], [CUDA_PTXAS=-v,-warn-spills,-warn-lmem-usage], [CUDA_PTXAS=-v])
AC_SUBST([CUDA_PTXAS])
AC_SUBST([CUDA_GENCODE])
AC_SUBST([CUDA_ARCHS])
])
AC_DEFUN([_STRATA_BAD_ARCH], [AC_MSG_ERROR([--with-cuda-arch=$with_cuda_arch: $1
  90a builds for Hopper alone, 80 for Ampere and all later GPUs, 80,90a for both with the fastest kernels on Hopper.])])

# Sets strata_cuda_result, and on success CUDA_CPPFLAGS, CUDA_LDFLAGS and CUDA_LIBS.
AC_DEFUN([_STRATA_FIND_CUDA], [
AS_CASE([$with_cuda], [yes|auto], [strata_cuda_dir=], [strata_cuda_dir=$with_cuda])
AS_IF([test -z "$NVCC"],
  [AS_IF([test -n "$strata_cuda_dir"],
    [AC_PATH_PROG([NVCC], [nvcc], [], [$strata_cuda_dir/bin])],
    [AC_PATH_PROG([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])])])
AS_IF([test -n "$NVCC" && test -z "$strata_cuda_dir"],
  [strata_cuda_dir=`readlink -f "\`command -v $NVCC\`" | sed 's,/bin/[[^/]]*$,,'`])

AS_IF([test -z "$NVCC"], [strata_cuda_result='no (nvcc not found)'], [
  AC_MSG_CHECKING([whether $NVCC compiles for $with_cuda_arch])
  cat > conftest.cu <<_STRATA_EOF
#include <cuda_runtime.h>
__global__ void add(float *x, int n) { if (threadIdx.x < n) x[[threadIdx.x]] += 1; }
extern "C" int conftest_launch(float *x, int n) { add<<<1, 32>>>(x, n); return cudaGetLastError(); }
_STRATA_EOF
  AS_IF([AC_TRY_COMMAND([$NVCC $CUDA_GENCODE $NVCCFLAGS -c -o conftest_cuda.o conftest.cu >&AS_MESSAGE_LOG_FD 2>&1])],
    [AC_MSG_RESULT([yes])
     _STRATA_LINK_CUDA],
    [AC_MSG_RESULT([no])
     strata_cuda_result="no ($NVCC cannot compile a kernel for $with_cuda_arch)"])
  rm -f conftest.cu conftest_cuda.o])
])

# Links the probe's object with the C compiler, as the modules will be.
AC_DEFUN([_STRATA_LINK_CUDA], [
strata_save_CPPFLAGS=$CPPFLAGS
strata_save_LDFLAGS=$LDFLAGS
strata_save_LIBS=$LIBS
AS_IF([test -d "$strata_cuda_dir/include"], [CUDA_CPPFLAGS="-I$strata_cuda_dir/include"])
AS_IF([test -d "$strata_cuda_dir/lib64"], [CUDA_LDFLAGS="-L$strata_cuda_dir/lib64"])
CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
LDFLAGS="$LDFLAGS $CUDA_LDFLAGS"
LIBS="conftest_cuda.o -lcublasLt -lcublas -lcudart -lstdc++ $LIBS"
AC_MSG_CHECKING([for the CUDA runtime and cuBLAS])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <cublasLt.h>
int conftest_launch(float *, int);]], [[return conftest_launch(0, 0) + (int)cublasLtGetVersion();]])],
  [CUDA_LIBS='-lcublasLt -lcublas -lcudart -lstdc++'],
  [strata_cuda_result='no (the CUDA runtime or cuBLAS does not link)'])
LIBS=$strata_save_LIBS
AS_IF([test -n "$CUDA_LIBS"],
  [AC_COMPUTE_INT([strata_cudart], [CUDART_VERSION], [[#include <cuda_runtime_api.h>]], [strata_cudart=0])
   CUDA_VERSION=`expr $strata_cudart / 1000`.`expr $strata_cudart % 1000 / 10`
   strata_cuda_result="$CUDA_VERSION for $with_cuda_arch ($strata_cuda_dir)"
   AC_MSG_RESULT([yes])],
  [CUDA_CPPFLAGS=
   CUDA_LDFLAGS=
   AC_MSG_RESULT([no])])
CPPFLAGS=$strata_save_CPPFLAGS
LDFLAGS=$strata_save_LDFLAGS
])

# Sets strata_cudnn_result, and on success CUDNN_CPPFLAGS.
AC_DEFUN([_STRATA_FIND_CUDNN], [
strata_save_CPPFLAGS=$CPPFLAGS
CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
AC_MSG_CHECKING([for the headers of cuDNN 9])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <cuda_runtime_api.h>
#include <cudnn_graph.h>]], [[cudnnBackendDescriptor_t part = 0;
return (int)CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC + (part != 0);]])],
  [CUDNN_CPPFLAGS=-DCUDA_WITH_CUDNN
   strata_cudnn_result='yes (its library is opened at run time)'],
  [strata_cudnn_result='no (cudnn_graph.h of cuDNN 9 not found)'])
AC_MSG_RESULT([$strata_cudnn_result])
CPPFLAGS=$strata_save_CPPFLAGS
])

# Sets strata_nccl_result, and on success NCCL_LIBS.
AC_DEFUN([_STRATA_FIND_NCCL], [
strata_save_CPPFLAGS=$CPPFLAGS
strata_save_LDFLAGS=$LDFLAGS
strata_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
LDFLAGS="$LDFLAGS $CUDA_LDFLAGS"
LIBS="-lnccl -lcudart $LIBS"
AC_MSG_CHECKING([for NCCL])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <nccl.h>]], [[int v; return (int)ncclGetVersion(&v);]])],
  [NCCL_LIBS=-lnccl
   strata_nccl_result=yes],
  [strata_nccl_result='no (nccl.h or libnccl not found)'])
AC_MSG_RESULT([$strata_nccl_result])
CPPFLAGS=$strata_save_CPPFLAGS
LDFLAGS=$strata_save_LDFLAGS
LIBS=$strata_save_LIBS
])
