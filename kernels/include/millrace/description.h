/* description.h: the description of a compiled operator, and its input for a batch.
 *
 * An operator is compiled from a source file that includes millrace/operator.cuh, for a GPU (cubin, fatbin, PTX) or for
 * the CPU (a shared library). Each compiled file has two symbols:
 *
 *   millrace_operator_description   a constant: struct millrace_description, followed by its entries. It contains no
 *                                   pointers, so a program can read it from the file without loading the code.
 *   millrace_operator_run           the code: a kernel on a GPU, a C function on the CPU.
 *
 * An operator with passes also has a kernel or function for each pass: millrace_operator_pass_NAME. For a batch,
 * the passes run in order, and then millrace_operator_run.
 *
 * Numbers are little-endian. Each structure can grow at its end in a later version of the contract. A description
 * therefore contains the sizes of its entries and of the structures that the code was compiled with. The header is
 * plain C11, and compiles with NVRTC, which has no standard headers.
 */
#ifndef MILLRACE_DESCRIPTION_H
#define MILLRACE_DESCRIPTION_H

#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
#else
#include <stdint.h>
#endif

/* The version of the contract between an operator and the worker. A worker with version n runs an operator that needs
 * version n or less. */
#define MILLRACE_CONTRACT 1u

/* The first eight bytes of a description. */
#define MILLRACE_DESCRIPTION_MAGIC "MILLROP"

/* Limits, so that readers of a description can limit their memory and time. Sizes of texts include the terminating
 * zero. */
#define MILLRACE_NAME_BYTES 32
#define MILLRACE_REASON_BYTES 64
#define MILLRACE_MOST_PARAMETERS 32
#define MILLRACE_MOST_FIELDS 64
#define MILLRACE_MOST_REASONS 64
#define MILLRACE_MOST_PASSES 8
#define MILLRACE_MOST_TABLE_BYTES (1u << 24) /* total size of an operator's tables */

/* The types of parameters and result fields. A parameter is a number, a truth value or a table. */
enum {
    MILLRACE_UINT8 = 1,
    MILLRACE_UINT16 = 2,
    MILLRACE_UINT32 = 3,
    MILLRACE_UINT64 = 4,
    MILLRACE_INT8 = 5,
    MILLRACE_INT16 = 6,
    MILLRACE_INT32 = 7,
    MILLRACE_INT64 = 8,
    MILLRACE_FLOAT32 = 9,
    MILLRACE_FLOAT64 = 10,
    MILLRACE_BYTES = 11, /* a field: a byte string; the record contains its length, a uint32 */
    MILLRACE_FILE = 12,  /* a parameter: the contents of a file */
    MILLRACE_BOOL = 13   /* a parameter: a byte that is 0 or 1 */
};

/* The part of the GPU that computes one record. */
enum {
    MILLRACE_THREAD = 1, /* one thread */
    MILLRACE_WARP = 2,   /* 32 threads */
    MILLRACE_BLOCK = 3,  /* all threads of a block */
    MILLRACE_LIBRARY = 5 /* the host code of a library launches kernels (millrace.h); threads and teams are 0 */
};

/* Properties of parameters and fields, combined with |. */
enum {
    MILLRACE_SHOWN = 1,      /* parameter: the JSON result contains the value, before the fields */
    MILLRACE_HEX = 1,        /* field: a string of hexadecimal digits in JSON; see the documentation of results */
    MILLRACE_BARE_JSON = 2,  /* the operator's only field: its value is the JSON value, without an object around it */
    MILLRACE_BARE_COLUMN = 4 /* the operator's only field: its values are the Arrow column, without a struct */
};

/* A record's status: one byte per record. A status from 1 to the number of declared reasons means that the operator
 * rejected the record for that reason. The result of a record that isn't MILLRACE_DONE is all zeros. */
enum {
    MILLRACE_DONE = 0,
    MILLRACE_BATCH_OUT_OF_BOUNDS = 253, /* a pass accessed something outside its bounds: no record of the batch has a result */
    MILLRACE_OUT_OF_BOUNDS = 254, /* the code accessed a byte outside the record or outside its result */
    MILLRACE_FAILED = 255         /* the operator couldn't compute the record */
};

/* One parameter. The parameter block holds the parameters in order of declaration, each aligned to its size. Numbers
 * are extended to 64 bits: unsigned, signed, or float64, according to the type. The bounds of a truth value are 0 and 1.
 *
 * A table has 8 bytes in the block: the position of its contents and their size, both uint32. The contents of all
 * tables follow the block, in order of declaration, from the next multiple of 16. Positions are relative to that start.
 * Each position is the next multiple of 16 after the end of the previous table. The bytes between tables are zero. */
typedef struct millrace_parameter {
    char name[MILLRACE_NAME_BYTES];
    uint32_t type;
    uint32_t flags;
    uint32_t at; /* position in the parameter block */
    uint32_t reserved;
    uint64_t preset; /* default value; 0 for a table, which has no default */
    uint64_t least;  /* smallest value; the smallest size of a table */
    uint64_t most;   /* largest value; the largest size of a table */
} millrace_parameter;

/* One result field. A record holds the fields in order of declaration, each aligned to the size of its elements, and
 * is padded to the size of its largest element. For a byte string, the record contains its length, a uint32.
 *
 * A field is optional if it isn't an array and `count_parameter` is a truth value. A result without the field is as if the
 * operator didn't declare it. The first field can't be optional. */
typedef struct millrace_field {
    char name[MILLRACE_NAME_BYTES];
    uint32_t type;
    uint32_t flags;
    uint32_t count;           /* number of elements; 0 if `count_parameter` holds the number */
    uint32_t count_parameter; /* index of a parameter plus 1; 0 means no parameter */
    uint32_t array;           /* 1 for an array (even of one element), 0 for a single value */
    uint32_t most_bytes;      /* maximum length of a byte string: most_bytes + most_per_byte * record bytes */
    uint32_t most_per_byte;
    uint32_t reserved;
} millrace_field;

/* One reason for which the operator may reject a record. */
typedef struct millrace_reason {
    char text[MILLRACE_REASON_BYTES];
} millrace_reason;

/* One pass over a batch: a kernel that runs before millrace_operator_run. Its grid has
 *
 *     ceil((constant + per_row * rows + per_byte * bytes) / share)
 *
 * blocks. A pass without a block is not launched. */
typedef struct millrace_pass {
    char name[MILLRACE_NAME_BYTES]; /* the symbol is millrace_operator_pass_NAME */
    uint32_t threads;               /* threads per block on a GPU */
    uint32_t constant;              /* at most 65536 */
    uint32_t per_row, per_byte;     /* together at most `share` */
    uint32_t share;                 /* at least 1 */
    uint32_t reserved;
} millrace_pass;

/* The description. Positions are relative to its start. */
typedef struct millrace_description {
    char magic[8];
    uint32_t size;            /* size of this structure */
    uint32_t bytes;           /* size of the description with all entries */
    uint32_t contract;        /* least version of the contract that the worker must have */
    uint32_t batch_size;      /* size of struct millrace_batch that the code was compiled with */
    uint32_t version;         /* version of the operator, incremented when its results or parameters change */
    uint32_t form;            /* MILLRACE_THREAD, ... */
    uint32_t threads;         /* threads per block on a GPU */
    uint32_t teams;           /* records that a block processes at once */
    uint32_t checked;         /* 1 if the code checks every access to a record */
    uint32_t parameter_bytes; /* size of the parameter block */
    uint32_t parameters, parameter_size, parameters_at;
    uint32_t fields, field_size, fields_at;
    uint32_t reasons, reason_size, reasons_at;
    uint32_t reserved;
    uint8_t source[32]; /* SHA-256 of the source file; zeros if unknown */
    char name[MILLRACE_NAME_BYTES];
    uint32_t passes, pass_size, passes_at;
    uint32_t scratch_bytes;    /* scratch memory of a batch: scratch_bytes + scratch_per_row * rows +         */
    uint32_t scratch_per_row;  /* scratch_per_byte * bytes. 0 without passes. With passes it begins with a    */
    uint32_t scratch_per_byte; /* uint32 that a pass sets if its code accesses a forbidden byte               */
} millrace_description;

/* A ragged batch and the addresses of its results. Addresses are in the device's memory, or in the process's memory on
 * the CPU. */
typedef struct millrace_batch {
    uint32_t size;    /* size of this structure; the code uses only the members that it was compiled with */
    uint32_t rows;    /* number of records */
    uint32_t bytes;   /* size of all records */
    uint32_t stride;  /* size of one record of the result */
    uint64_t data;    /* bytes of the records, back to back, at any address; nothing beyond `bytes` may be read */
    uint64_t offsets; /* rows + 1 uint32: record i is data[offsets[i]] up to data[offsets[i + 1]] */
    uint64_t result;  /* rows * stride bytes, aligned to 256 */
    uint64_t status;  /* `rows` bytes */
    uint64_t strings; /* contents of the byte strings; for each field in turn, slots for all records. The slot of record
                         i starts at most_bytes * i + most_per_byte * offsets[i] */
    uint64_t scratch; /* scratch memory, aligned to 256; all zeros before the first pass */
    uint64_t tables;  /* contents of the tables, aligned to 16 */
} millrace_batch;

#endif /* MILLRACE_DESCRIPTION_H */
