/* Run a fuzz target over every file of a folder: `replay_NAME FOLDER`. An empty folder is an error,
 * so that a corpus that went missing does not look like success. */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) {
        perror(path);
        if (f)
            fclose(f);
        return 1;
    }
    long size = ftell(f);
    rewind(f);
    /* Exactly as large as the file, so that a sanitizer sees a read past its end. */
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    int failed = size < 0 || !data || fread(data, 1, (size_t)size, f) != (size_t)size;
    fclose(f);
    if (failed)
        fprintf(stderr, "%s: cannot read it\n", path);
    else
        LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return failed;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER (that can be read)\n", argv[0]);
        return 2;
    }
    int n = 0, failed = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        failed += replay_file(path);
        n++;
    }
    closedir(folder);
    printf("%d inputs\n", n);
    if (n == 0)
        fprintf(stderr, "%s: no inputs\n", argv[1]);
    return n == 0 || failed != 0;
}
