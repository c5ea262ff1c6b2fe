# The self-test that runs before the first load: each assumption about ggml is broken once. Included by tests/CMakeLists.txt.
add_executable(seam-check ${CMAKE_CURRENT_LIST_DIR}/check.c)
target_link_libraries(seam-check PRIVATE sluice_static)
