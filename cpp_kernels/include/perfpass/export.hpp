// Which names the shared library shows. Where the core is linked into another module (the Python one), none.
#pragma once

#if defined(PERFPASS_LIBRARY) && !defined(_WIN32)
#define PERFPASS_API __attribute__((visibility("default")))
#else
#define PERFPASS_API
#endif
