# `make deb`, `cpack -G DEB`: a Debian package of what `cmake --install` installs, below /usr.
#
# One package for all: the command, the libraries that it needs, and what embeds it. Depends is found by dpkg-shlibdeps in
# the files themselves. cmake/deb-finish.cmake does what Debian wants beyond an installation (copyright, changelog,
# compressed manual pages).
#
# It is named honestly: the usual llama.cpp build (native) is compiled for the processor of the machine that built it, and
# so is the package: its description says so, with the processor's name. SLUICE_LLAMA_KIND=dl makes one for every processor
# with AVX2 (on amd64), at some cost in speed.
set(maintainer "The sluice authors <sluice@localhost.localdomain>") # a placeholder: nobody reads that mail
if(DEFINED ENV{DEBEMAIL} AND DEFINED ENV{DEBFULLNAME}) # as Debian's own tools have it
    set(maintainer "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(SLUICE_MAINTAINER "${maintainer}" CACHE STRING "Maintainer of the Debian package: NAME <ADDRESS>")

set(processor "")
if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo lines REGEX "^model name")
    if(lines)
        list(GET lines 0 line)
        string(REGEX REPLACE "^[^:]*: *" "" line "${line}")
        string(SUBSTRING "${line}" 0 76 line)
        set(processor "\n${line}.")
    endif()
endif()
if(SLUICE_LLAMA_HOW STREQUAL "native")
    set(portability "This package was built for the processor of the machine that built it:${processor}
A program of it that meets a processor without one of the instruction sets
that sluice --version lists ends with an illegal instruction: build it there.")
elseif(SLUICE_LLAMA_HOW STREQUAL "dl")
    set(portability "This package runs on every processor with the instruction sets that llama.cpp
takes for given when it is not built for one machine: on amd64 AVX2, FMA,
BMI2 and F16C.")
else()
    set(portability "It was built for the llama.cpp ${SLUICE_LLAMA_VERSION} that was installed where it
was built, and needs the same one.")
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sluice)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${SLUICE_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "run Mixture-of-Experts language models bigger than memory")
set(CPACK_PACKAGE_DESCRIPTION "Sluice keeps the small part of a GGUF model that every token uses in memory,
and reads from disk only the experts that each token is routed to. The output
is that of the model in memory, to the last bit. It has a command of its own,
and a plug-in that lets unmodified llama.cpp programs stream.
.
${portability}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# For embedding: what sluice.pc and the CMake package ask for.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libjansson-dev, libmicrohttpd-dev, pkg-config")
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/deb-finish.cmake)
include(CPack)
