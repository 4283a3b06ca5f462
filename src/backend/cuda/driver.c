#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <string.h>

void cuda_driver_close(struct cuda_driver *driver)
{
    if (driver->library)
        dlclose(driver->library);
    *driver = (struct cuda_driver){0};
}

/* A function of the library into a member of the table. ISO C has no cast from an object pointer to
 * a function pointer, POSIX promises that the bytes are the same. */
static bool find(void *library, const char *symbol, void *member)
{
    void *address = dlsym(library, symbol);
    memcpy(member, &address, sizeof address);
    return address != NULL;
}

ob_status cuda_driver_open(struct cuda_driver *driver, struct ob_error *err)
{
    *driver = (struct cuda_driver){.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)};
    if (!driver->library)
        return ob_fail(err, OB_UNSUPPORTED,
                       "backend 'cuda' is not available: this machine has no NVIDIA driver "
                       "(libcuda.so.1)");
#define FIND(name, symbol, parameters)                                                             \
    if (!find(driver->library, symbol, &driver->name)) {                                           \
        cuda_driver_close(driver);                                                                 \
        return ob_fail(err, OB_UNSUPPORTED,                                                        \
                       "backend 'cuda' is not available: the NVIDIA driver is too old, it has no " \
                       "%s",                                                                       \
                       symbol);                                                                    \
    }
    CUDA_DRIVER_FUNCTIONS(FIND)
#undef FIND
    return OB_OK;
}

ob_status cuda_check(cuda_result result, const char *what, struct ob_error *err)
{
    switch (result) {
    case CUDA_OK:
        return OB_OK;
    case CUDA_NO_MEMORY:
        return ob_fail(err, OB_NO_MEMORY, "not enough memory on the GPU for %s", what);
    case CUDA_NO_DEVICE:
        return ob_fail(err, OB_UNSUPPORTED, "backend 'cuda' is not available: there is no GPU");
    case CUDA_NO_BINARY:
        return ob_fail(err, OB_UNSUPPORTED,
                       "backend 'cuda' is not available: this GPU is older than compute capability "
                       "8.0");
    default:
        return ob_fail(err, OB_IO_ERROR, "the GPU failed while %s: CUDA error %d", what, result);
    }
}
