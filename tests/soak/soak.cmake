# The soak: everything at once for 2,000 tokens (soak.c), also in builds with sanitizers. Included by tests/CMakeLists.txt.
add_executable(sluice-soak ${CMAKE_CURRENT_LIST_DIR}/soak.c ${CMAKE_CURRENT_LIST_DIR}/faults.c
    ${CMAKE_CURRENT_LIST_DIR}/quiet.c)
target_link_libraries(sluice-soak PRIVATE sluice_static llama_llama Threads::Threads ${CMAKE_DL_LIBS})
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/soak)
# Of each of the two runs so many tokens. Under ThreadSanitizer one takes 20 times as long.
set(soak_tokens 2000)
if(SLUICE_SANITIZE)
    set(soak_tokens 1000)
endif()
add_test(NAME soak COMMAND ${CMAKE_CURRENT_LIST_DIR}/soak.sh ${soak_tokens})
# The timeout only ends a hang.
set_tests_properties(soak PROPERTIES LABELS soak TIMEOUT 1800 PROCESSORS 2
    ENVIRONMENT "BIN=${CMAKE_BINARY_DIR}/bin;WORK=${CMAKE_BINARY_DIR}/soak")
