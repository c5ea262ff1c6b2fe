# Crafted models: files that lie, and models at the edges of what is allowed. Included by tests/CMakeLists.txt.
add_executable(hostile-craft ${CMAKE_CURRENT_LIST_DIR}/craft.c)
target_link_libraries(hostile-craft PRIVATE sluice_options m)
add_executable(hostile-ids ${CMAKE_CURRENT_LIST_DIR}/ids.c)
target_link_libraries(hostile-ids PRIVATE sluice_static)
