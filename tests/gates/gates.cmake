# Gates: logits with the plug-in are byte-identical to logits without it (run-gates.sh, lib.sh).
# Builds with sanitizers run a subset: they are ten times slower, and llama.cpp itself is not instrumented.
add_executable(sluice-logits ${CMAKE_CURRENT_LIST_DIR}/logits.c ${CMAKE_CURRENT_LIST_DIR}/resize.c
    ${CMAKE_CURRENT_LIST_DIR}/backends.c)
target_link_libraries(sluice-logits PRIVATE sluice_options llama_llama Threads::Threads ${CMAKE_DL_LIBS} m)

add_executable(sluice-residency ${CMAKE_CURRENT_LIST_DIR}/residency.c ${CMAKE_CURRENT_LIST_DIR}/backends.c)
target_link_libraries(sluice-residency PRIVATE sluice_options llama_llama ${CMAKE_DL_LIBS})

add_library(sluice-backends SHARED ${CMAKE_CURRENT_LIST_DIR}/backends_preload.c ${CMAKE_CURRENT_LIST_DIR}/backends.c)
target_link_libraries(sluice-backends PRIVATE sluice_options llama_ggml ${CMAKE_DL_LIBS})

if(NOT SLUICE_SANITIZE) # their library must come before anything that is preloaded
    add_library(sluice-pagesize SHARED ${CMAKE_CURRENT_LIST_DIR}/pagesize.c)
    target_link_libraries(sluice-pagesize PRIVATE sluice_options ${CMAKE_DL_LIBS})
endif()

set(gates_environment
    BIN=${CMAKE_BINARY_DIR}/bin
    LLAMA_BIN=${SLUICE_LLAMA_BIN}
    LLAMA_SRC=${SLUICE_LLAMA_SOURCE_DIR}
    LLAMA_VERSION=${SLUICE_LLAMA_VERSION}
    WORK=${CMAKE_BINARY_DIR}/gates)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/gates)

function(sluice_gate name)
    add_test(NAME ${name} COMMAND ${ARGN})
    # One processor each, though they compute with two threads: those sleep while they wait (lib.sh), and half of the time
    # is starting programs. The timeout only ends a hang.
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${gates_environment}" TIMEOUT 1800 LABELS gates)
endfunction()

if(SLUICE_SANITIZE)
    set(gates subset)
else()
    set(gates archs few types layouts shapes waves slots concurrency dense matrix pages fuse)
    sluice_gate(stock-programs ${CMAKE_CURRENT_LIST_DIR}/stock-programs.sh)
    sluice_gate(gate-perplexity bash ${CMAKE_CURRENT_LIST_DIR}/perplexity.sh ${CMAKE_SOURCE_DIR}/models)
    sluice_gate(gate-lossy ${CMAKE_CURRENT_LIST_DIR}/lossy.sh archs shapes)
endif()
if(NOT SLUICE_SANITIZE)
    sluice_gate(gate-cold ${CMAKE_CURRENT_LIST_DIR}/cold.sh archs types refused)
endif()
sluice_gate(gate-cold-subset ${CMAKE_CURRENT_LIST_DIR}/cold.sh subset)
sluice_gate(gate-lossy-subset ${CMAKE_CURRENT_LIST_DIR}/lossy.sh subset)
foreach(gate IN LISTS gates)
    sluice_gate(gate-${gate} ${CMAKE_CURRENT_LIST_DIR}/run-gates.sh ${gate})
endforeach()
if(NOT SLUICE_SANITIZE)
    set_tests_properties(gate-fuse PROPERTIES SKIP_RETURN_CODE 77)
endif()
