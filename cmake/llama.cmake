# Where llama.cpp comes from: SLUICE_LLAMA_SOURCE, else an installed one when asked for, else the
# pinned release, fetched and built once by scripts/llama.sh. Defines
#   llama_ggml    ggml-base, ggml and ggml-cpu with their headers, the backend interface included
#   llama_llama   the same and libllama
#   SLUICE_LLAMA_SOURCE_DIR, SLUICE_LLAMA_BIN, SLUICE_LLAMA_VERSION
add_library(llama_ggml INTERFACE)
add_library(llama_llama INTERFACE)
target_link_libraries(llama_llama INTERFACE llama_ggml)

if(SLUICE_LLAMA_SYSTEM)
    find_package(llama CONFIG REQUIRED)
    # ggml-backend-impl.h is not installed: take it from the source beside, which must be of the same release.
    if(NOT SLUICE_LLAMA_SOURCE)
        message(FATAL_ERROR "SLUICE_LLAMA_SYSTEM also needs -DSLUICE_LLAMA_SOURCE=DIR of the same release: "
            "an installed llama.cpp does not carry ggml-backend-impl.h, the header that plug-ins need")
    endif()
    set(SLUICE_LLAMA_SOURCE_DIR ${SLUICE_LLAMA_SOURCE})
    set(SLUICE_LLAMA_VERSION "v${LLAMA_VERSION}")
    set(SLUICE_LLAMA_BIN ${LLAMA_BIN_DIR})
    target_link_libraries(llama_ggml INTERFACE ggml::ggml)
    target_link_libraries(llama_llama INTERFACE llama)
    # An installed libggml does not say where libggml-cpu is: a search path that its own dependencies inherit does.
    list(APPEND CMAKE_BUILD_RPATH ${LLAMA_LIB_DIR})
    list(APPEND CMAKE_INSTALL_RPATH ${LLAMA_LIB_DIR})
    target_link_options(llama_ggml INTERFACE LINKER:--disable-new-dtags)
else()
    set(stage lib)
    # Tests of another release (tests/releases) build llama.cpp's programs themselves when they want them.
    if(SLUICE_TESTS AND NOT SLUICE_LLAMA_RELEASE AND NOT SLUICE_LLAMA_KIND MATCHES "^(tsan|arm64|npm)$")
        set(stage tools)
    endif()
    if(SLUICE_LLAMA_SOURCE)
        set(ENV{SLUICE_LLAMA_SOURCE} ${SLUICE_LLAMA_SOURCE})
    endif()
    set(as_usual)
    if(SLUICE_FUZZ) # clang is for the targets alone; CMake has put it into the environment
        set(as_usual ${CMAKE_COMMAND} -E env --unset=CC --unset=CXX)
    endif()
    execute_process(COMMAND ${as_usual} ${CMAKE_SOURCE_DIR}/scripts/llama.sh ${stage} ${SLUICE_LLAMA_KIND} ${SLUICE_LLAMA_RELEASE}
        OUTPUT_VARIABLE llama_out RESULT_VARIABLE llama_rc)
    if(NOT llama_rc EQUAL 0)
        message(FATAL_ERROR "scripts/llama.sh failed")
    endif()
    string(REGEX MATCH "source=([^\n]+)" _ "${llama_out}")
    set(SLUICE_LLAMA_SOURCE_DIR ${CMAKE_MATCH_1})
    string(REGEX MATCH "build=([^\n]+)" _ "${llama_out}")
    set(SLUICE_LLAMA_BIN ${CMAKE_MATCH_1}/bin)
    string(REGEX MATCH "version=([^\n]+)" _ "${llama_out}")
    set(SLUICE_LLAMA_VERSION ${CMAKE_MATCH_1})
    message(STATUS "llama.cpp ${SLUICE_LLAMA_VERSION}: ${SLUICE_LLAMA_BIN}")
    # llama-server beside those libraries, which is where `sluice serve` looks. Only when asked for: minutes.
    add_custom_target(server COMMAND ${CMAKE_COMMAND} -E env "SLUICE_LLAMA_SOURCE=${SLUICE_LLAMA_SOURCE}"
        ${CMAKE_SOURCE_DIR}/scripts/llama.sh server ${SLUICE_LLAMA_KIND} ${SLUICE_LLAMA_RELEASE} USES_TERMINAL VERBATIM)
    target_link_directories(llama_ggml INTERFACE ${SLUICE_LLAMA_BIN})
    target_link_libraries(llama_ggml INTERFACE ggml ggml-base)
    target_link_libraries(llama_llama INTERFACE llama)
    if(CMAKE_CROSSCOMPILING) # with a sysroot the linker looks for libraries of libraries inside it
        target_link_options(llama_ggml INTERFACE LINKER:-rpath-link,${SLUICE_LLAMA_BIN})
    endif()
    # One directory for all: the libraries are found where they were built.
    list(APPEND CMAKE_BUILD_RPATH ${SLUICE_LLAMA_BIN})
    list(APPEND CMAKE_INSTALL_RPATH ${SLUICE_LLAMA_BIN})
endif()
target_include_directories(llama_ggml SYSTEM INTERFACE ${SLUICE_LLAMA_SOURCE_DIR}/ggml/include
    ${SLUICE_LLAMA_SOURCE_DIR}/ggml/src ${SLUICE_LLAMA_SOURCE_DIR}/include)
