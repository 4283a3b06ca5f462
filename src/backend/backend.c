#include "backend/backend.h"

ob_status ob_backend_find(const char *name, const struct ob_backend **out, struct ob_error *err)
{
    if (!name || ob_str_is(ob_str_from(name), "auto") || ob_str_is(ob_str_from(name), "cpu")) {
        *out = &ob_backend_cpu;
        return OB_OK;
    }
    if (ob_str_is(ob_str_from(name), "null")) {
        *out = &ob_backend_null;
        return OB_OK;
    }
    if (ob_str_is(ob_str_from(name), "cuda")) { /* says at open what is missing */
        *out = &ob_backend_cuda;
        return OB_OK;
    }
    if (ob_str_is(ob_str_from(name), "webgpu"))
        return ob_fail(err, OB_UNSUPPORTED, "backend '%s' is not part of this build", name);
    return ob_fail(err, OB_INVALID_ARGUMENT,
                   "unknown backend '%s': there are auto, cpu, cuda and null", name);
}
