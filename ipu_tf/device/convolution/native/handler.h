// What each handler of XLA's FFI here begins with: the answer to XLA's question for a version, and refusals.
#ifndef IPU_TF_HANDLER_H
#define IPU_TF_HANDLER_H

#include "xla_ffi.h"

#define EXPORT __attribute__((visibility("default")))

// Answers XLA, which asks for the version of the interface first. Returns whether the call is one to execute.
static inline int handler_executes(FfiCall *call) {
  FfiExtension *extension = call->extension;
  if (extension && extension->type == FFI_EXTENSION_METADATA) {
    FfiMetadata *metadata = ((FfiMetadataExtension *)extension)->metadata;
    metadata->version.major = FFI_MAJOR;
    metadata->version.minor = FFI_MINOR;
    metadata->traits = 0;
    return 0;
  }
  return call->stage == FFI_STAGE_EXECUTE;
}

static inline FfiError *handler_refuses(const FfiCall *call, const char *message) {
  FfiErrorCreate error = {sizeof error, NULL, message, FFI_INVALID_ARGUMENT};
  return call->api->error_create(&error);
}

// Returns the call's one attribute, an array of so many int64; NULL if it has another.
static inline const void *handler_words(const FfiCall *call, size_t count) {
  if (call->attributes.size != 1) return NULL;
  const FfiArray *words = call->attributes.each[0];
  return words->dtype == FFI_INT64 && words->size == count ? words->data : NULL;
}

// Returns how many elements a buffer of a dtype has, -1 if it is of another.
static inline int64_t handler_elements(const FfiBuffer *buffer, int dtype) {
  int64_t count = 1;
  for (int64_t axis = 0; axis < buffer->rank; axis++) count *= buffer->dims[axis];
  return buffer->dtype == dtype ? count : -1;
}

#endif
