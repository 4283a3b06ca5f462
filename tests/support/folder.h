/* A folder of the test's own, which must be empty again at its end: pass test_folder_make and
 * test_folder_remove to cmocka_run_group_tests. */
#ifndef TEST_SUPPORT_FOLDER_H
#define TEST_SUPPORT_FOLDER_H

#include <stddef.h>

int test_folder_make(void **state);
int test_folder_remove(void **state);

const char *test_folder(void);
/* The path of a file in it; one string per name, which stays. */
const char *in_folder(const char *name);
/* Files in it, hidden ones not counted. */
size_t count_files(void);

/* Whole files; the running test fails where that cannot be. read_file ends `bytes` [capacity] with a
 * NUL and returns its length. */
void write_file(const char *path, const void *bytes, size_t n);
size_t read_file(const char *path, char *bytes, size_t capacity);

#endif
