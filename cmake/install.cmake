# What `cmake --install` puts where, below any prefix:
#
#   bin/sluice               the command
#   lib/sluice/              what it loads: plug-in, preload library, llama.cpp's libraries, llama-server when it was built
#   lib/sluice/include/      llama.cpp's headers, of the release that those libraries are
#   lib/libsluice.a  include/sluice.h  lib/pkgconfig/sluice.pc  lib/cmake/sluice/    for programs that embed it
#   share/                   manual pages, completions, documents, licences, the example
#
# One private directory, with search paths relative to each file ($ORIGIN): the tree works where it is put, after a move
# too, needs nothing of the build tree or of the cache, and never meets another llama.cpp's libraries, whose file names
# are the same. It is `lib` on every system, also where libraries go to lib64: the command looks in ../lib/sluice
# (src/cli/launch.c). With SLUICE_LLAMA_SYSTEM llama.cpp's libraries stay where they are installed.
#
# The libraries of the pinned llama.cpp are copied by cmake/install-llama.cmake and not by llama.cpp's own install rules,
# which take the search paths out, and install headers and programs where another llama.cpp may be.
set(libdir lib)
set(privatedir lib/sluice)
set(docdir share/doc/sluice)

set(origin_bin "$ORIGIN/../lib/sluice")
set(origin_private "$ORIGIN")
if(SLUICE_LLAMA_SYSTEM)
    list(APPEND origin_bin ${LLAMA_LIB_DIR})
    list(APPEND origin_private ${LLAMA_LIB_DIR})
endif()
set_target_properties(sluice PROPERTIES INSTALL_RPATH "${origin_bin}")
set_target_properties(ggml-sluice sluice-preload PROPERTIES INSTALL_RPATH "${origin_private}")

install(TARGETS sluice RUNTIME DESTINATION bin)
install(TARGETS ggml-sluice sluice-preload LIBRARY DESTINATION ${privatedir})
install(TARGETS sluice_static ARCHIVE DESTINATION ${libdir})
install(FILES include/sluice.h DESTINATION include)

# Embedding: pkg-config and find_package. Both find everything by their own place.
include(CMakePackageConfigHelpers)
if(SLUICE_LLAMA_SYSTEM)
    set(pc_requires "jansson libmicrohttpd llama")
    # As cmake/llama.cmake: an installed libggml finds libggml-cpu only by a search path that it inherits.
    set(pc_llama "-Wl,--disable-new-dtags -Wl,-rpath,${LLAMA_LIB_DIR}")
    set(pc_cflags "")
else()
    set(pc_requires "jansson libmicrohttpd")
    set(pc_llama "-L\${privatedir} -Wl,-rpath,\${privatedir} -lllama -lggml -lggml-base")
    set(pc_cflags "-I\${privatedir}/include")
    install(FILES ${SLUICE_LLAMA_SOURCE_DIR}/include/llama.h ${SLUICE_LLAMA_SOURCE_DIR}/include/llama-cpp.h
        ${SLUICE_LLAMA_SOURCE_DIR}/ggml/include/ggml.h ${SLUICE_LLAMA_SOURCE_DIR}/ggml/include/ggml-alloc.h
        ${SLUICE_LLAMA_SOURCE_DIR}/ggml/include/ggml-backend.h ${SLUICE_LLAMA_SOURCE_DIR}/ggml/include/ggml-cpp.h
        ${SLUICE_LLAMA_SOURCE_DIR}/ggml/include/ggml-cpu.h ${SLUICE_LLAMA_SOURCE_DIR}/ggml/include/ggml-opt.h
        ${SLUICE_LLAMA_SOURCE_DIR}/ggml/include/gguf.h DESTINATION ${privatedir}/include)
endif()
configure_file(cmake/sluice.pc.in ${CMAKE_BINARY_DIR}/package/sluice.pc @ONLY)
configure_package_config_file(cmake/sluiceConfig.cmake.in ${CMAKE_BINARY_DIR}/package/sluiceConfig.cmake
    INSTALL_DESTINATION ${libdir}/cmake/sluice)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/sluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/sluice.pc DESTINATION ${libdir}/pkgconfig)
install(FILES ${CMAKE_BINARY_DIR}/package/sluiceConfig.cmake ${CMAKE_BINARY_DIR}/package/sluiceConfigVersion.cmake
    DESTINATION ${libdir}/cmake/sluice)

# What is made from the option tables.
if(TARGET pages)
    install(DIRECTORY ${CMAKE_BINARY_DIR}/pages/ DESTINATION share/man/man1 FILES_MATCHING PATTERN "*.1")
    install(FILES ${CMAKE_BINARY_DIR}/pages/sluice.bash DESTINATION share/bash-completion/completions RENAME sluice)
    install(FILES ${CMAKE_BINARY_DIR}/pages/_sluice DESTINATION share/zsh/site-functions)
    install(FILES ${CMAKE_BINARY_DIR}/pages/sluice.fish DESTINATION share/fish/vendor_completions.d)
endif()

# Documents, the example, licences. docs/ stays a directory, so that the links in README.md and the help pages hold.
install(FILES README.md LICENSE DESTINATION ${docdir})
install(DIRECTORY docs DESTINATION ${docdir} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png" PATTERN "*.csv")
install(DIRECTORY examples DESTINATION ${docdir})
set(licenses ${CMAKE_BINARY_DIR}/licenses)
add_custom_command(OUTPUT ${licenses}/base/INDEX
    COMMAND bash ${CMAKE_SOURCE_DIR}/scripts/licenses.sh ${licenses} ${SLUICE_LLAMA_SOURCE_DIR}
    DEPENDS scripts/licenses.sh scripts/npm-package.sh LICENSE VERBATIM)
add_custom_target(licenses ALL DEPENDS ${licenses}/base/INDEX)

install(CODE "
    set(llama_bin \"${SLUICE_LLAMA_BIN}\")
    set(llama_system \"${SLUICE_LLAMA_SYSTEM}\")
    set(licenses \"${licenses}\")
    set(privatedir \"${privatedir}\")
    set(docdir \"${docdir}\")")
install(SCRIPT cmake/install-llama.cmake)
