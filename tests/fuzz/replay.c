/* Runs a fuzz target over the files of a folder, so that every input that once broke a reader stays
 * a test under gcc. usage: fuzz_x FOLDER. Ends with 1 where the folder holds no file.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    int n = 0;

    for (struct dirent *e = NULL; dir != NULL && (e = readdir(dir)) != NULL;) {
        char *path = nw_path_join(argv[1], e->d_name);
        nw_file f = {0};
        nw_error err;
        if (path != NULL && nw_file_map(path, &f, &err) == NW_OK) {
            (void)LLVMFuzzerTestOneInput(f.data, f.size);
            nw_file_unmap(&f);
            n++;
        }
        free(path);
    }
    (void)printf("%d inputs replayed\n", n);
    return dir == NULL || closedir(dir) != 0 || n == 0;
}
