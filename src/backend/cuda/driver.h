/* The CUDA driver as this backend sees it: a table of the functions it calls.
 *
 * The table is filled from libcuda.so.1 at run time, so nothing is linked and a machine without a
 * driver gets a status. Tests fill it with functions of their own. Declarations are ours: the driver's
 * binary interface is stable, and no header of the toolkit is needed to build. */
#ifndef OB_BACKEND_CUDA_DRIVER_H
#define OB_BACKEND_CUDA_DRIVER_H

#include "base/error.h"

/* Codes that get a status of their own. */
enum { CUDA_OK = 0, CUDA_NO_MEMORY = 2, CUDA_NO_DEVICE = 100, CUDA_NO_BINARY = 209 };

/* Attributes of a device and of a function, by the driver's numbers. */
enum {
    CUDA_DEVICE_MULTIPROCESSORS = 16,
    CUDA_DEVICE_MAJOR = 75,
    CUDA_DEVICE_MINOR = 76,
    CUDA_FUNCTION_DYNAMIC_SHARED = 8,
    CUDA_CAPTURE_THREAD_LOCAL = 1,
};

typedef int cuda_result;
typedef uint64_t cuda_address;           /* of device memory */
typedef struct cuda_object *cuda_handle; /* context, module, function, stream, event, graph */

/* name, the driver's symbol, parameters */
#define CUDA_DRIVER_FUNCTIONS(X)                                                                   \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(device_count, "cuDeviceGetCount", (int *count))                                              \
    X(device_get, "cuDeviceGet", (int *device, int ordinal))                                       \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))           \
    X(context_retain, "cuDevicePrimaryCtxRetain", (cuda_handle * context, int device))             \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                               \
    X(context_set, "cuCtxSetCurrent", (cuda_handle context))                                       \
    X(module_load, "cuModuleLoadData", (cuda_handle * module, const void *image))                  \
    X(module_unload, "cuModuleUnload", (cuda_handle module))                                       \
    X(function_get, "cuModuleGetFunction",                                                         \
      (cuda_handle * function, cuda_handle module, const char *name))                              \
    X(function_set, "cuFuncSetAttribute", (cuda_handle function, int attribute, int value))        \
    X(alloc, "cuMemAlloc_v2", (cuda_address * address, size_t n_bytes))                            \
    X(free, "cuMemFree_v2", (cuda_address address))                                                \
    X(host_alloc, "cuMemAllocHost_v2", (void **address, size_t n_bytes))                           \
    X(host_free, "cuMemFreeHost", (void *address))                                                 \
    X(upload, "cuMemcpyHtoD_v2", (cuda_address to, const void *from, size_t n_bytes))              \
    X(upload_async, "cuMemcpyHtoDAsync_v2",                                                        \
      (cuda_address to, const void *from, size_t n_bytes, cuda_handle stream))                     \
    X(download_async, "cuMemcpyDtoHAsync_v2",                                                      \
      (void *to, cuda_address from, size_t n_bytes, cuda_handle stream))                           \
    X(clear_async, "cuMemsetD8Async",                                                              \
      (cuda_address to, unsigned char value, size_t n_bytes, cuda_handle stream))                  \
    X(stream_create, "cuStreamCreate", (cuda_handle * stream, unsigned flags))                     \
    X(stream_destroy, "cuStreamDestroy_v2", (cuda_handle stream))                                  \
    X(stream_wait, "cuStreamSynchronize", (cuda_handle stream))                                    \
    X(capture_begin, "cuStreamBeginCapture_v2", (cuda_handle stream, int mode))                    \
    X(capture_end, "cuStreamEndCapture", (cuda_handle stream, cuda_handle * graph))                \
    X(graph_instantiate, "cuGraphInstantiateWithFlags",                                            \
      (cuda_handle * exec, cuda_handle graph, unsigned long long flags))                           \
    X(graph_destroy, "cuGraphDestroy", (cuda_handle graph))                                        \
    X(graph_exec_destroy, "cuGraphExecDestroy", (cuda_handle exec))                                \
    X(graph_launch, "cuGraphLaunch", (cuda_handle exec, cuda_handle stream))                       \
    X(event_create, "cuEventCreate", (cuda_handle * event, unsigned flags))                        \
    X(event_destroy, "cuEventDestroy_v2", (cuda_handle event))                                     \
    X(event_record, "cuEventRecord", (cuda_handle event, cuda_handle stream))                      \
    X(event_elapsed, "cuEventElapsedTime", (float *ms, cuda_handle start, cuda_handle end))        \
    X(launch, "cuLaunchKernel",                                                                    \
      (cuda_handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,  \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, cuda_handle stream,              \
       void **parameters, void **extra))                                                           \
    X(launch_together, "cuLaunchCooperativeKernel",                                                \
      (cuda_handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,  \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, cuda_handle stream,              \
       void **parameters))

#define CUDA_DRIVER_MEMBER(name, symbol, parameters) cuda_result(*name) parameters;

struct cuda_driver {
    CUDA_DRIVER_FUNCTIONS(CUDA_DRIVER_MEMBER)
    void *library; /* what dlopen gave; NULL for a table of a test */
};

/* Open the library and find every function. OB_UNSUPPORTED when there is no driver, or it is too old. */
ob_status cuda_driver_open(struct cuda_driver *driver, struct ob_error *err);
void cuda_driver_close(struct cuda_driver *driver);

/* OB_OK, or the status of a failed call: `what` says what was being done ("loading the kernels"). */
ob_status cuda_check(cuda_result result, const char *what, struct ob_error *err);

#endif
