// The positions of the members in version 5 of the ABI. They never change, because a structure grows only at its end. Later
// versions only add lines to this file.
#include <stddef.h>

#include "include/millrace.h"

#define AT(structure, member, position) \
    static_assert(offsetof(structure, member) == (position), #structure "." #member " has moved")

AT(millrace_error, size, 0);
AT(millrace_error, status, 4);
AT(millrace_error, code, 8);
AT(millrace_error, message, 12);
AT(millrace_device_info, size, 0);
AT(millrace_device_info, name, 8);
AT(millrace_device_info, uuid, 264);
AT(millrace_device_info, memory, 312);
AT(millrace_device_info, ordinal, 320);
AT(millrace_device_info, runtime_version, 340);
AT(millrace_device_info, pci, 344);
AT(millrace_pool_stats, size, 0);
AT(millrace_pool_stats, used, 8);
AT(millrace_pool_stats, reserved_high, 32);
AT(millrace_shape, size, 0);
AT(millrace_shape, rows, 8);
AT(millrace_shape, longest, 24);
AT(millrace_needs, size, 0);
AT(millrace_needs, in_place, 4);
AT(millrace_needs, scratch, 8);
AT(millrace_needs, result, 16);
AT(millrace_launch, size, 0);
AT(millrace_launch, rows, 8);
AT(millrace_launch, batch, 32);
AT(millrace_launch, result, 56);
AT(millrace_launch, strings, 72);
AT(millrace_operator, size, 0);
AT(millrace_operator, version, 4);
AT(millrace_operator, name, 8);
AT(millrace_operator, description, 16);
AT(millrace_operator, create, 24);
AT(millrace_operator, launch, 48);
AT(millrace_library, size, 0);
AT(millrace_library, abi_version, 4);
AT(millrace_library, least_version, 8);
AT(millrace_library, op, 16);
AT(millrace_source, size, 0);
AT(millrace_source, compute, 4);
AT(millrace_source, name, 8);
AT(millrace_source, options, 40);
AT(millrace_source, headers, 48);
AT(millrace_source, option_count, 52);
AT(millrace_compiled, size, 0);
AT(millrace_compiled, image, 8);
AT(millrace_compiled, log, 24);
AT(millrace_compiler, size, 0);
AT(millrace_compiler, version, 4);
AT(millrace_api, size, 0);
AT(millrace_api, abi_version, 4);
AT(millrace_api, least_version, 8);
AT(millrace_api, operator_count, 12);
AT(millrace_api, operators, 16);
AT(millrace_api, versions, 24);
AT(millrace_api, device_check, 64);
AT(millrace_api, event_elapsed, 152);
AT(millrace_api, pool_stats, 240);
AT(millrace_api, launch, 272);
AT(millrace_api, completion_drain, 296);
AT(millrace_api, range_end, 328);
AT(millrace_api, operator_load, 336);
AT(millrace_api, compiled_free, 368);
AT(millrace_api, library_open, 376);
AT(millrace_neardup_parameters, size, 0);
AT(millrace_neardup_parameters, batch, 16);
AT(millrace_neardup_memory, size, 0);
AT(millrace_neardup_memory, result, 16);
AT(millrace_neardup_memory, carried, 32);
AT(millrace_neardup_batch, size, 0);
AT(millrace_neardup_batch, records, 8);
AT(millrace_neardup_batch, result, 32);
AT(millrace_neardup_row, inserted, 16);
AT(millrace_neardup_row, relabeled, 27);
AT(millrace_neardup_rows, size, 0);
AT(millrace_neardup_rows, first, 8);
AT(millrace_neardup_rows, conflicts, 88);
AT(millrace_api, neardup_needs, 384);
AT(millrace_api, neardup_replay, 424);
