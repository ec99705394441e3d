// The part of XLA's FFI that is used here: binary layout of version 0.3, which XLA keeps for 12 months at least.
// Declared here, so that building needs neither jaxlib nor a network; a test compares it with jaxlib's own header.
#ifndef IPU_TF_XLA_FFI_H
#define IPU_TF_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

enum { FFI_MAJOR = 0, FFI_MINOR = 3 };
enum { FFI_STAGE_EXECUTE = 3, FFI_EXTENSION_METADATA = 1, FFI_INVALID_ARGUMENT = 3 };
enum {
  FFI_BOOL = 1,
  FFI_INT8 = 2,
  FFI_INT32 = 4,
  FFI_INT64 = 5,
  FFI_UINT8 = 6,
  FFI_UINT32 = 8,
  FFI_FLOAT32 = 11,
  FFI_FLOAT64 = 12
};

typedef struct FfiExtension {
  size_t struct_size;
  int type;
  struct FfiExtension *next;
} FfiExtension;

typedef struct FfiVersion {
  size_t struct_size;
  FfiExtension *extension;
  int major, minor;
} FfiVersion;

typedef struct FfiMetadata {
  size_t struct_size;
  FfiVersion version;
  uint32_t traits;
} FfiMetadata;

typedef struct FfiMetadataExtension {
  FfiExtension base;
  FfiMetadata *metadata;
} FfiMetadataExtension;

typedef struct FfiBuffer {
  size_t struct_size;
  FfiExtension *extension;
  int dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
} FfiBuffer;

typedef struct FfiArray {
  int dtype;
  size_t size;
  void *data;
} FfiArray;

typedef struct FfiBuffers {  // of arguments, and of results
  size_t struct_size;
  FfiExtension *extension;
  int64_t size;
  int *types;
  void **each;
} FfiBuffers;

typedef struct FfiAttributes {
  size_t struct_size;
  FfiExtension *extension;
  int64_t size;
  int *types;
  void **names;
  void **each;
} FfiAttributes;

typedef struct FfiError FfiError;
typedef struct FfiContext FfiContext;

typedef struct FfiErrorCreate {
  size_t struct_size;
  FfiExtension *extension;
  const char *message;
  int code;
} FfiErrorCreate;

typedef struct FfiErrorDestroy {
  size_t struct_size;
  FfiExtension *extension;
  FfiError *error;
} FfiErrorDestroy;

typedef struct FfiSchedule {
  size_t struct_size;
  FfiExtension *extension;
  FfiContext *context;
  void (*task)(void *);
  void *data;
} FfiSchedule;

typedef struct FfiThreads {
  size_t struct_size;
  FfiExtension *extension;
  FfiContext *context;
  int64_t *count;
} FfiThreads;

typedef struct FfiApi {
  size_t struct_size;
  FfiExtension *extension;
  FfiVersion version;
  const void *internal;
  FfiError *(*error_create)(FfiErrorCreate *);
  void *error_message;
  void (*error_destroy)(FfiErrorDestroy *);
  void *not_used[8];
  FfiError *(*schedule)(FfiSchedule *);
  FfiError *(*threads)(FfiThreads *);
} FfiApi;

typedef struct FfiCall {
  size_t struct_size;
  FfiExtension *extension;
  const FfiApi *api;
  FfiContext *context;
  int stage;
  FfiBuffers arguments, results;
  FfiAttributes attributes;
} FfiCall;

#endif
