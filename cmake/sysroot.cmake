# sysroot.cmake - CMAKE_TOOLCHAIN_FILE: this machine's gcc with the glibc of build-sysroot (scripts/sysroot).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
get_filename_component(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build-sysroot ABSOLUTE)
set(CMAKE_C_COMPILER gcc)
# Without -B gcc finds libc by its own path, not by the root's.
set(CMAKE_C_FLAGS_INIT -B${CMAKE_SYSROOT}/usr/lib/x86_64-linux-gnu/)
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
