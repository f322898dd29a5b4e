// Package config reads the worker's configuration from environment variables that begin with MILLRACE_. Only cmd/worker uses it.
//
// Start reading at the struct Config. The tags of its fields are the only place that states the default, the bounds and the meaning of a
// variable. The table of `worker config`, docs/configuration.md and the error messages come from them. Load then reads and validates.
package config

import (
	"log/slog"
	"time"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
)

// Prefix begins the name of every variable, followed by an underscore.
const Prefix = "MILLRACE"

// Config is the worker's whole configuration. The variable of a field is Prefix, an underscore, and the name of the field in upper case
// with its words separated by underscores: BatchBytes is MILLRACE_BATCH_BYTES.
//
// These tags describe a variable:
//   - default: its value if the environment does not set it
//   - but: an addition to the default, for people
//   - desc: its meaning
//   - min, max: the bounds of a number, a size or a duration
//   - oneof: the words that it may be
//   - is: the syntax of a text, a key of syntaxes
//   - form: its possible values in words, if no other tag states them
//
// Do not use the tag envconfig. With it, that library also reads the name without the prefix, and the variables STREAM or DEVICE of
// another program would configure the worker.
type Config struct {
	NATS NATS

	DataDir          string `split_words:"true" default:"millrace-data" form:"a directory" desc:"where the embedded server stores its streams"`
	Stream           string `split_words:"true" default:"INGEST" is:"name" form:"a stream name" desc:"the input stream"`
	Subjects         List   `split_words:"true" default:"ingest.>" form:"subject filters, separated by commas" desc:"the subjects of the input"`
	Consumer         string `split_words:"true" default:"millrace" is:"name" form:"a consumer name" desc:"the durable pull consumer"`
	ResultStream     string `split_words:"true" default:"RESULTS" is:"name" form:"a stream name" desc:"the stream that stores results"`
	ResultPrefix     string `split_words:"true" default:"results" is:"prefix" form:"subject tokens without wildcards, like results" desc:"replaces the first token of an input's subject: the result of ingest.web.en goes to results.web.en"`
	DeadletterPrefix string `split_words:"true" default:"deadletter" is:"prefix" form:"subject tokens without wildcards, like deadletter" desc:"replaces the first token of an input's subject: the dead letter of ingest.web.en goes to deadletter.web.en"`
	CommitPrefix     string `split_words:"true" default:"commits" is:"prefix" form:"subject tokens without wildcards, like commits" desc:"begins the subjects of commit markers: commits.RESULTS.INGEST.millrace.3 is the marker of partition 3 in the stream RESULTS"`
	Provision        bool   `split_words:"true" default:"false" but:", true when embedded" desc:"creates the streams and the consumer if they are missing; changes no stream that exists"`

	StreamRetention    string        `split_words:"true" default:"auto" oneof:"auto,limits" desc:"which inputs a stream that the worker creates keeps. auto: each input until every consumer has acknowledged it. limits: every input; see docs/streams.md"`
	StreamTrim         string        `split_words:"true" default:"auto" oneof:"auto,true,false" desc:"whether this worker removes processed inputs. auto: from a stream that a worker created with MILLRACE_STREAM_RETENTION=auto, unless another stream copies it. true: from any stream with retention by limits. false: never; see docs/streams.md"`
	StreamMaxAge       time.Duration `split_words:"true" default:"0s" min:"0s" max:"87600h" desc:"how long an input stream that the worker creates keeps an input, processed or not; 0: no limit"`
	StreamMaxBytes     Size          `split_words:"true" default:"4GiB" min:"0" max:"1048576GiB" desc:"the size at which an input stream that the worker creates refuses inputs; 0: no limit"`
	ResultMaxAge       time.Duration `split_words:"true" default:"168h" min:"0s" max:"87600h" desc:"how long a result stream that the worker creates keeps a result, read or not; 0: no limit"`
	ResultMaxBytes     Size          `split_words:"true" default:"4GiB" min:"0" max:"1048576GiB" desc:"the size at which a result stream that the worker creates refuses results, so that the worker waits; 0: no limit"`
	DeadletterMaxAge   time.Duration `split_words:"true" default:"0s" min:"0s" max:"87600h" desc:"how long a dead-letter stream that the worker creates keeps a dead letter, read or not; 0: no limit"`
	DeadletterMaxBytes Size          `split_words:"true" default:"1GiB" min:"0" max:"1048576GiB" desc:"the size at which a dead-letter stream that the worker creates refuses dead letters, so that their inputs are redelivered; 0: no limit"`
	ProvisionReplicas  int           `split_words:"true" default:"0" min:"0" max:"5" desc:"the replicas of the streams that the worker creates; 0: three in a cluster of three or more servers, otherwise one"`
	ProvisionStorage   string        `split_words:"true" default:"file" oneof:"file,memory" desc:"where the streams that the worker creates are stored"`

	Delivery   string `split_words:"true" default:"shared" oneof:"shared,exclusive" desc:"shared: all workers share one consumer and acknowledge each input separately. exclusive: each partition has one worker, which stores results in order and sends one acknowledgement per batch; see docs/guarantees.md"`
	Partitions int    `split_words:"true" default:"8" min:"1" max:"256" desc:"the number of partitions for exclusive delivery. It must be the same for all workers and in the subject transform of the stream"`

	ExactlyOnce string `split_words:"true" default:"auto" oneof:"auto,required,off" desc:"whether exclusive delivery stores each result exactly once. auto: if the streams take commit markers, otherwise once within the duplicate window. required: the worker doesn't start if they don't. off: once within the duplicate window; see docs/exactly-once.md"`
	Result      Result

	Ack string `split_words:"true" default:"sent" oneof:"sent,confirmed" desc:"sent: if an acknowledgement is lost, the worker publishes the result again, and the result stream drops it within its duplicate window. confirmed: the server confirms each acknowledgement"`

	MaxDeliver    int           `split_words:"true" default:"10" min:"1" max:"1000" desc:"the worker retries a payload alone if it was delivered more often than this. If it fails alone, it becomes a dead letter"`
	AckWait       time.Duration `split_words:"true" default:"30s" min:"1s" max:"1h" desc:"how long the server waits for an acknowledgement before it redelivers; a setting of the consumer that the worker creates"`
	MaxAckPending int           `split_words:"true" default:"0" min:"0" max:"10000000" desc:"how many payloads may be delivered and not yet acknowledged; a setting of the consumer that the worker creates; 0: derived from lanes and batch payloads"`

	Operators    List   `split_words:"true" default:"crc32c,minhash" form:"operators, separated by commas, like crc32c,minhash?k=24" desc:"the operators in order, with parameters as a query: minhash?k=24&hashes=128&seed=1"`
	OperatorPath List   `split_words:"true" form:"folders, separated by commas" desc:"folders with operators of your own; see docs/operators.md"`
	CacheDir     string `split_words:"true" form:"a directory" desc:"keeps compiled operators, and several workers may share it; empty: operators are compiled at each start"`
	ResultFormat string `split_words:"true" default:"json" oneof:"json,binary,arrow" desc:"the format of results; see docs/results.md"`

	Framing        string `split_words:"true" default:"none" oneof:"none,newline_delimited,length_delimited,varint_length_delimited,arrow,auto" desc:"how a message holds records. none: it is one record. newline_delimited: LF or CRLF ends a record. length_delimited: a big-endian uint32 with its length precedes each record. varint_length_delimited: a protobuf varint does. arrow: an Arrow IPC stream, in which each value of one column is a record. auto: by Content-Type, otherwise one record"`
	ArrowColumn    string `split_words:"true" form:"a column name, or empty" desc:"the Arrow column that holds the records; empty: the only binary or string column"`
	FrameRecords   int    `split_words:"true" default:"65536" min:"1" max:"16777216" desc:"the largest number of records in a message"`
	FrameBytes     Size   `split_words:"true" default:"64MiB" min:"4KiB" max:"4095MiB" desc:"the largest size of a framed or compressed message after decompression. The worker reserves memory for it; see docs/operations.md"`
	Decompress     string `split_words:"true" default:"none" oneof:"none,zstd,gzip,lz4,snappy,auto" desc:"the compression of messages. auto: by Content-Encoding, otherwise none"`
	ResultEncoding string `split_words:"true" default:"none" oneof:"none,zstd,lz4,snappy" desc:"the compression of results, which their Content-Encoding names"`

	Device  string `split_words:"true" default:"auto" oneof:"auto,cuda,host" desc:"cuda: GPUs. host: CPU cores. auto: GPUs if there are any"`
	Devices List   `split_words:"true" default:"all" form:"all, or GPU ordinals and UUIDs, like 0,1 or GPU-..." desc:"the GPUs to use"`
	Kernels string `split_words:"true" form:"the path of libmillrace.so" desc:"the kernel library; empty: search beside the executable, then in the system's library path"`
	NVRTC   string `form:"the path of libnvrtc.so" desc:"the library that compiles operators of your own; empty: search beside libmillrace.so, in LD_LIBRARY_PATH, in /usr/local/cuda/lib64 and in the system's library folders"`

	Lanes         int           `split_words:"true" default:"4" min:"1" max:"64" desc:"the number of lanes per device: streams in flight"`
	BatchBytes    Size          `split_words:"true" default:"4MiB" min:"4KiB" max:"1GiB" desc:"a batch closes when it has this size"`
	BatchPayloads int           `split_words:"true" default:"8192" min:"1" max:"1048576" desc:"a batch closes when it has this many payloads"`
	Linger        time.Duration `split_words:"true" default:"2ms" min:"0s" max:"1m" desc:"a batch closes when its oldest payload has waited this long, or up to 100ms later while the server is busy with other batches"`
	ScratchLimit  Size          `split_words:"true" default:"1GiB" min:"2MiB" max:"1024GiB" desc:"the largest size of each device's scratch pool"`
	MemoryLimit   Size          `split_words:"true" default:"0" min:"0" max:"1048576GiB" desc:"the memory that the whole process may take; 0: the limit of its cgroup, or half of the machine's memory; see docs/operations.md"`

	BatchDeadlineMin time.Duration `split_words:"true" default:"10s" min:"100ms" max:"1h" desc:"a device hangs if a batch takes much longer than usual and longer than this. The worker then ends with exit status 70"`
	BatchDeadlineMax time.Duration `split_words:"true" default:"2m" min:"100ms" max:"1h" desc:"a device hangs if a batch, even the first, takes longer than this"`

	DrainTimeout time.Duration `split_words:"true" default:"25s" min:"1s" max:"1h" desc:"how long the worker may take to finish its payloads after it is told to stop; keep it below the supervisor's grace period"`

	HTTPAddr  string     `split_words:"true" default:":9464" is:"address" form:"host:port, or empty for off" desc:"serves /metrics, /healthz and /readyz"`
	DebugAddr string     `split_words:"true" is:"address" form:"host:port, or empty for off" desc:"serves the timeline, /trace?seconds=N and /debug/pprof, on 127.0.0.1 without a host; worker demo uses 127.0.0.1:6060 if the variable is not set"`
	LogLevel  slog.Level `split_words:"true" default:"info" oneof:"debug,info,warn,error" desc:"the lowest level that is logged"`
	LogFormat string     `split_words:"true" default:"auto" oneof:"auto,text,json" desc:"text: coloured lines. json: one object per line. auto: text on a terminal, json elsewhere"`
	NVTX      bool       `default:"false" desc:"shows batches and stages in Nsight Systems; costs one call to the GPU per stage instead of one per batch"`

	read      readings            // what Load found in the environment
	operators []operator.Operator // Operators, parsed
	format    operator.Format     // ResultFormat, parsed

	framing        frame.Framing        // Framing, parsed
	decompress     compression.Encoding // Decompress, parsed
	resultEncoding compression.Encoding // ResultEncoding, parsed
}

// Result describes the messages that hold results.
type Result struct {
	IDs bool `default:"true" desc:"whether a result has its id in Nats-Msg-Id. false: in Millrace-Id, so that the server keeps no ids in memory; only in effect with exactly once"`
}

// NATS describes how to connect to the NATS servers.
type NATS struct {
	URL   List   `form:"nats://, tls://, ws:// or wss:// addresses or host:port, separated by commas" desc:"the servers; empty: an embedded server on 127.0.0.1:4222"`
	Creds string `is:"file" form:"a readable file" desc:"the user's credentials (JWT and seed)"`
	NKey  string `is:"file" form:"a readable file" desc:"the user's NKey seed"`
	TLS   TLS
	JS    JS

	Connections int `default:"0" min:"0" max:"16" desc:"the number of connections to the server; 0: one with shared delivery and four with exclusive. It hardly matters; see docs/streams.md"`
}

// TLS names the PEM files for the connection to NATS.
type TLS struct {
	CA   string `is:"file" form:"a readable file" desc:"PEM file of the authorities that may sign the server's certificate; empty: those of the system"`
	Cert string `is:"file" form:"a readable file" desc:"PEM file of the client's certificate"`
	Key  string `is:"file" form:"a readable file" desc:"PEM file of the client's private key"`

	First bool `default:"false" desc:"begins with TLS before the server sends anything, for a server with handshake_first in its tls block"`
}

// JS says where JetStream is. At most one field is set.
type JS struct {
	Domain string `is:"domain" form:"a JetStream domain, or empty" desc:"the JetStream domain of all streams, if the worker connects to a leaf node; empty: the JetStream of the server"`
	Prefix string `is:"api" form:"subject tokens without wildcards, or empty" desc:"the prefix of JetStream's subjects, if the streams are in another account whose API this one imports: with from.hub the worker asks on from.hub.STREAM.INFO.INGEST; see docs/security.md"`
}

// Embedded reports whether the worker starts an embedded NATS server, because NATS.URL is empty.
func (c *Config) Embedded() bool { return len(c.NATS.URL) == 0 }

// IsSet reports whether the environment sets a variable, given its whole name. A command whose default differs from the worker's calls
// it before it changes a field.
func (c *Config) IsSet(variable string) bool {
	_, set := c.read.set[variable]
	return set
}

// ParsedOperators returns the operators that Operators names, in order. It returns nil if they cannot be parsed, which Load reports.
func (c *Config) ParsedOperators() []operator.Operator { return c.operators }

// ParsedFormat returns the format that ResultFormat names.
func (c *Config) ParsedFormat() operator.Format { return c.format }

// ParsedSplitter returns how messages are split into records, and the limits of a frame.
func (c *Config) ParsedSplitter() frame.Splitter {
	return frame.Splitter{Framing: c.framing, Column: c.ArrowColumn, MaxRecords: c.FrameRecords, MaxBytes: int64(c.FrameBytes)}
}

// ParsedDecompress returns the compression of messages that Decompress names.
func (c *Config) ParsedDecompress() compression.Encoding { return c.decompress }

// ParsedResultEncoding returns the compression of results that ResultEncoding names.
func (c *Config) ParsedResultEncoding() compression.Encoding { return c.resultEncoding }

// Warnings returns findings that do not stop the worker, one sentence each: misspelt names, settings without effect, and addresses that
// other machines can reach.
func (c *Config) Warnings() []string { return c.read.warnings }
