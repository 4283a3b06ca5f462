#include "support/folder.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"

static char folder[] = "test-XXXXXX";

int test_folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

int test_folder_remove(void **state)
{
    (void)state;
    return rmdir(folder);
}

const char *test_folder(void)
{
    return folder;
}

const char *in_folder(const char *name)
{
    static char paths[32][128];
    char wanted[128];
    snprintf(wanted, sizeof wanted, "%s/%s", folder, name);
    for (int i = 0; i < 32; i++) {
        if (!paths[i][0])
            strcpy(paths[i], wanted);
        if (strcmp(paths[i], wanted) == 0)
            return paths[i];
    }
    fail_msg("too many names");
    return NULL;
}

size_t count_files(void)
{
    DIR *dir = opendir(folder);
    size_t n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

size_t read_file(const char *path, char *bytes, size_t capacity)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, capacity - 1, f);
    assert_true(n < capacity - 1); /* the buffer was large enough */
    bytes[n] = '\0';
    fclose(f);
    return n;
}
