# Toolchain: 64-bit ARM Linux, by Debian's cross compiler (gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu).
# For llama.cpp (scripts/llama.sh lib arm64) the compiler's own C library is enough. SLUICE_SYSROOT in the
# environment names a directory with the libraries of that system (scripts/aarch64.sh makes it): sluice needs some.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
if(DEFINED ENV{SLUICE_SYSROOT})
    set(CMAKE_SYSROOT $ENV{SLUICE_SYSROOT})
    set(ENV{PKG_CONFIG_SYSROOT_DIR} $ENV{SLUICE_SYSROOT})
    set(ENV{PKG_CONFIG_LIBDIR} $ENV{SLUICE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
