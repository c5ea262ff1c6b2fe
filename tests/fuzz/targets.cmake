# The fuzz targets (docs/fuzzing.md): one program per fuzz_*.c, for libFuzzer, with AddressSanitizer and
# UndefinedBehaviorSanitizer. Included by the top CMakeLists.txt when SLUICE_FUZZ is on, which wants a build tree of its
# own made by clang; tests/fuzz/build.sh makes one.
if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "SLUICE_FUZZ needs clang: -DCMAKE_C_COMPILER=clang")
endif()

# float-cast-overflow is not in `undefined`: a number of a file that is cast to an integer which cannot hold it.
set(fuzz_sanitize -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all)
# Everything that reads what others wrote. No llama.cpp, and of ggml only the sizes of its types.
file(GLOB fuzz_sources CONFIGURE_DEPENDS src/cache/*.c src/memory/*.c src/observe/*.c src/trace/*.c src/bench/*.c src/gguf/*.c src/window/*.c)
foreach(part identity info log prompt_file quality reference utf8)
    list(APPEND fuzz_sources src/run/${part}.c)
endforeach()
foreach(part args bench_plan http json options replay_plot replay_print text top_show)
    list(APPEND fuzz_sources src/cli/${part}.c)
endforeach()
add_library(sluice_fuzzed STATIC ${fuzz_sources} tests/fuzz/fuzz.c)
target_link_libraries(sluice_fuzzed PUBLIC sluice_options llama_ggml PkgConfig::JANSSON
    PkgConfig::MICROHTTPD PkgConfig::XXHASH Threads::Threads m)
target_include_directories(sluice_fuzzed PUBLIC tests/fuzz)
target_compile_options(sluice_fuzzed PUBLIC -O1 -g -UNDEBUG -fno-omit-frame-pointer ${fuzz_sanitize}
    -fsanitize=fuzzer-no-link)

add_custom_target(fuzz-targets)
file(GLOB fuzz_targets CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source ${fuzz_targets})
    string(REGEX REPLACE ".*/fuzz_(.*)[.]c$" "\\1" target ${source})
    add_executable(fuzz-${target} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(fuzz-${target} PRIVATE sluice_fuzzed)
    target_link_options(fuzz-${target} PRIVATE ${fuzz_sanitize} -fsanitize=fuzzer)
    add_dependencies(fuzz-targets fuzz-${target})
endforeach()
