# Crafted models: files that lie, and models at the edges of what is allowed. Included by tests/CMakeLists.txt.
add_executable(hostile-craft ${CMAKE_CURRENT_LIST_DIR}/craft.c)
target_link_libraries(hostile-craft PRIVATE sluice_options m)
add_executable(hostile-ids ${CMAKE_CURRENT_LIST_DIR}/ids.c)
target_link_libraries(hostile-ids PRIVATE sluice_static)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/hostile)
add_test(NAME hostile-models COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/run-hostile.sh)
# The timeout only ends a hang. Sleeping teams of threads compute the same as spinning ones.
set_tests_properties(hostile-models PROPERTIES LABELS hostile TIMEOUT 900 PROCESSORS 2
    ENVIRONMENT "BIN=${CMAKE_BINARY_DIR}/bin;LLAMA_BIN=${SLUICE_LLAMA_BIN};LLAMA_SRC=${SLUICE_LLAMA_SOURCE_DIR};WORK=${CMAKE_BINARY_DIR}/hostile;OMP_WAIT_POLICY=passive")
