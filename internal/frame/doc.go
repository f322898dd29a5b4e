// Package frame splits the body of a message into records. A frame is a message that holds many records, because small
// records that travel one by one leave a GPU idle.
//
// Package ingest opens a Frame for each message, after decompression. It copies the records into batches with a Cursor,
// and reads single records for dead letters.
//
// Open validates the whole body once and indexes its records: 8 bytes per record, whatever the framing. Everything
// after Open only reads the index, so that no record can fail later. Nothing copies the body, except the compressed
// buffers of an Arrow stream.
//
// Start reading at Splitter.Open. Each framing has its own file.
package frame
