// Package config reads the worker's configuration from environment variables that begin with MILLRACE_. Only cmd/worker
// uses the package.
//
// Start reading at the struct Config. Only the tags of its fields define the default, the bounds and the meaning of a
// variable. The table of `worker config`, docs/configuration.md and the error messages use the tags. Load reads and
// validates the variables.
package config

import (
	"log/slog"
	"time"

	"millrace/internal/compression"
	"millrace/internal/filter"
	"millrace/internal/frame"
	"millrace/internal/operator"
)

// Prefix is the first part of every variable's name, before an underscore.
const Prefix = "MILLRACE"

// Config is the worker's configuration. The name of a field's variable is Prefix, an underscore, and the field's words
// in upper case, separated by underscores. For example, the variable of BatchBytes is MILLRACE_BATCH_BYTES.
//
// These tags describe a variable:
//   - default: the value if the environment does not set the variable
//   - but: an addition to the default, for people
//   - desc: the meaning
//   - min, max: the bounds of a number, a size or a duration
//   - oneof: the permitted words
//   - is: the syntax of a text, a key of syntaxes
//   - form: the possible values in words, if no other tag defines them
//
// Do not use the tag envconfig. With that tag, the library envconfig also reads the name without the prefix. The
// variables STREAM or DEVICE of another program would then configure the worker.
type Config struct {
	NATS NATS

	DataDir          string `split_words:"true" default:"millrace-data" form:"a directory" desc:"where the embedded server stores its streams"`
	Stream           string `split_words:"true" default:"INGEST" is:"streams" form:"stream names or patterns like INGEST-*, separated by commas" desc:"the input stream, or several; see docs/streams.md"`
	Subjects         List   `split_words:"true" default:"ingest.>" but:"; with several streams: those of each stream" form:"subject filters, separated by commas" desc:"the subjects of the input. {0} stands for the name of the input stream"`
	Consumer         string `split_words:"true" default:"millrace" is:"name" form:"a consumer name" desc:"the durable pull consumer"`
	ResultStream     string `split_words:"true" default:"RESULTS" is:"template" form:"a stream name, or a template like RESULTS-{1}" desc:"the stream that stores results. {0} stands for the name of the input stream, and {1} for what the first * in its pattern stands for"`
	ResultPrefix     string `split_words:"true" default:"results" is:"prefixes" form:"subject tokens without wildcards, like results" desc:"replaces the first token of the input's subject: the result of ingest.web.en goes to results.web.en. With RESULTS-{1}, the default is results-{1}"`
	DeadletterPrefix string `split_words:"true" default:"deadletter" is:"prefixes" form:"subject tokens without wildcards, like deadletter" desc:"replaces the first token of the input's subject: the dead letter of ingest.web.en goes to deadletter.web.en"`
	CommitPrefix     string `split_words:"true" default:"commits" is:"prefix" form:"subject tokens without wildcards, like commits" desc:"the prefix of the subjects of commit markers, such as commits.RESULTS.INGEST.millrace.3 for partition 3"`
	Provision        bool   `split_words:"true" default:"false" but:", true when embedded" desc:"creates missing streams and consumers; see docs/streams.md"`

	StreamRetention    string        `split_words:"true" default:"auto" oneof:"auto,limits" desc:"the inputs that a stream keeps if the worker creates it. auto: each input until every consumer has acknowledged it. limits: all inputs; see docs/streams.md"`
	StreamTrim         string        `split_words:"true" default:"auto" oneof:"auto,true,false" desc:"removes processed inputs. auto: if a worker created the stream with retention auto, and no other stream copies it. true: if the stream has retention by limits. false: never; see docs/streams.md"`
	StreamMaxAge       time.Duration `split_words:"true" default:"0s" min:"0s" max:"87600h" desc:"max_age of an input stream that the worker creates, also for unprocessed inputs; 0: no limit"`
	StreamMaxBytes     Size          `split_words:"true" default:"4GiB" min:"0" max:"1048576GiB" desc:"max_bytes of an input stream that the worker creates; 0: no limit"`
	ResultMaxAge       time.Duration `split_words:"true" default:"168h" min:"0s" max:"87600h" desc:"max_age of a result stream that the worker creates, also for unread results; 0: no limit"`
	ResultMaxBytes     Size          `split_words:"true" default:"4GiB" min:"0" max:"1048576GiB" desc:"max_bytes of a result stream that the worker creates; 0: no limit"`
	DeadletterMaxAge   time.Duration `split_words:"true" default:"0s" min:"0s" max:"87600h" desc:"max_age of a dead-letter stream that the worker creates; 0: no limit"`
	DeadletterMaxBytes Size          `split_words:"true" default:"1GiB" min:"0" max:"1048576GiB" desc:"max_bytes of a dead-letter stream that the worker creates; 0: no limit"`
	ProvisionReplicas  int           `split_words:"true" default:"0" min:"0" max:"5" desc:"the replicas of streams that the worker creates; 0: three in a cluster of three or more servers, otherwise one"`
	ProvisionStorage   string        `split_words:"true" default:"file" oneof:"file,memory" desc:"the storage of streams that the worker creates"`

	Delivery   string `split_words:"true" default:"shared" oneof:"shared,exclusive" desc:"shared: all workers share one consumer. exclusive: each partition has one worker, which stores results in order; see docs/guarantees.md"`
	Partitions int    `split_words:"true" default:"8" min:"1" max:"256" desc:"the number of partitions for exclusive delivery. It must be the same for all workers and in the stream's subject transform"`

	ExactlyOnce string `split_words:"true" default:"auto" oneof:"auto,required,off" desc:"stores each result exactly once with exclusive delivery. auto: if the streams accept commit markers. required: the worker doesn't start if they don't. off: never; see docs/exactly-once.md"`
	Result      Result

	Ack string `split_words:"true" default:"sent" oneof:"sent,confirmed" desc:"sent: acknowledgements may be lost, and their inputs are then redelivered. confirmed: the server confirms each acknowledgement"`

	MaxDeliver    int           `split_words:"true" default:"10" min:"1" max:"1000" desc:"after this many deliveries, the worker retries a payload alone. If the payload fails alone, it becomes a dead letter"`
	AckWait       time.Duration `split_words:"true" default:"30s" min:"1s" max:"1h" desc:"the time after which the server redelivers an unacknowledged payload; set on a consumer that the worker creates"`
	MaxAckPending int           `split_words:"true" default:"0" min:"0" max:"10000000" desc:"the largest number of unacknowledged payloads; set on a consumer that the worker creates; 0: derived from lanes and batch payloads"`

	Operators    List            `split_words:"true" default:"crc32c,minhash" form:"operators, separated by commas, like crc32c,minhash?k=24" desc:"the operators in order, with their parameters as a query"`
	OperatorPath List            `split_words:"true" form:"folders, separated by commas" desc:"folders with operators of your own; see docs/operators.md"`
	CacheDir     string          `split_words:"true" form:"a directory" desc:"keeps compiled operators. Workers may share it. empty: the worker compiles operators at each start"`
	ResultFormat operator.Format `split_words:"true" default:"json" oneof:"json,binary,arrow,annotated" desc:"the format of results. annotated: the record itself, a JSON object or an Arrow row, with one more member or column; see docs/results.md"`
	AnnotateAs   string          `split_words:"true" default:"millrace" is:"member" form:"letters, digits and underscores" desc:"the name of the member or column with the results of an annotated record, which replaces an existing one"`
	Filter       string          `form:"a CEL expression, preset:curator-english, or empty" desc:"the condition for records in results, such as record.bytes > 100; empty: all records; see docs/text.md"`

	State State

	Framing        frame.Framing        `split_words:"true" default:"none" oneof:"none,newline_delimited,length_delimited,varint_length_delimited,arrow,json_array,auto" desc:"how a message holds records. none: it is one record. auto: its Content-Type selects the framing; see docs/frames.md"`
	Field          string               `form:"a name, a path like doc.body, or empty" desc:"the field of each JSON object that is the record, or the Arrow column that holds the records; empty: the whole record, or the only binary or string column; see docs/text.md"`
	FieldMissing   string               `split_words:"true" default:"reject" oneof:"reject,null" desc:"the outcome of a record whose field is missing or isn't a string. reject: a dead letter. null: a result with the status null"`
	KeepFields     List                 `split_words:"true" form:"names or paths, separated by commas" desc:"the fields or Arrow columns that are copied to the record's result; see docs/text.md"`
	FrameRecords   int                  `split_words:"true" default:"65536" min:"1" max:"16777216" desc:"the largest number of records in a message"`
	FrameBytes     Size                 `split_words:"true" default:"64MiB" min:"4KiB" max:"4095MiB" desc:"the largest size of a framed or compressed message after decompression. The worker reserves memory for it; see docs/operations.md"`
	Decompress     compression.Encoding `split_words:"true" default:"none" oneof:"none,zstd,gzip,lz4,snappy,auto" desc:"the compression of messages. auto: by Content-Encoding, otherwise none"`
	ResultEncoding compression.Encoding `split_words:"true" default:"none" oneof:"none,zstd,lz4,snappy" desc:"the compression of results, which their Content-Encoding names"`

	Device  string `split_words:"true" default:"auto" oneof:"auto,cuda,host" desc:"cuda: GPUs. host: CPU cores. auto: GPUs if there are any"`
	Devices List   `split_words:"true" default:"all" form:"all, or GPU ordinals and UUIDs, like 0,1 or GPU-..." desc:"the GPUs to use"`
	Kernels string `split_words:"true" form:"the path of libmillrace.so" desc:"the kernel library; empty: search beside the executable, then in the system's library path"`
	NVRTC   string `form:"the path of libnvrtc.so" desc:"the library that compiles operators of your own; empty: search beside libmillrace.so, in LD_LIBRARY_PATH, /usr/local/cuda/lib64 and the system's library folders"`

	Lanes         int           `split_words:"true" default:"4" min:"1" max:"64" desc:"the number of lanes per device: streams in flight"`
	BatchBytes    Size          `split_words:"true" default:"4MiB" min:"4KiB" max:"1GiB" desc:"a batch closes when it has this size"`
	BatchPayloads int           `split_words:"true" default:"8192" min:"1" max:"1048576" desc:"a batch closes when it has this many payloads"`
	Linger        time.Duration `split_words:"true" default:"2ms" min:"0s" max:"1m" desc:"a batch closes when its oldest payload has waited this long, or up to 100ms longer while the server stores other batches. With exclusive delivery, payloads also wait while results of their partition are being stored"`
	ScratchLimit  Size          `split_words:"true" default:"1GiB" min:"2MiB" max:"1024GiB" desc:"the largest size of each device's scratch pool"`
	MemoryLimit   Size          `split_words:"true" default:"0" min:"0" max:"1048576GiB" desc:"the memory limit of the process; 0: its cgroup's limit, or half of the machine's memory; see docs/operations.md"`

	BatchDeadlineMin time.Duration `split_words:"true" default:"10s" min:"100ms" max:"1h" desc:"the worker treats a device as hung if a batch takes much longer than usual and longer than this; see docs/troubleshooting.md"`
	BatchDeadlineMax time.Duration `split_words:"true" default:"2m" min:"100ms" max:"1h" desc:"the worker treats a device as hung if a batch, even the first, or a call of a stateful operator's state takes longer than this"`

	DrainTimeout time.Duration `split_words:"true" default:"25s" min:"1s" max:"1h" desc:"the maximum time in which a stopping worker finishes its payloads. Keep it below the supervisor's grace period"`

	HTTPAddr  string     `split_words:"true" default:":9464" is:"address" form:"host:port, or empty for off" desc:"serves /metrics, /healthz and /readyz"`
	DebugAddr string     `split_words:"true" is:"address" form:"host:port, or empty for off" desc:"serves the timeline, /trace?seconds=N and /debug/pprof, on 127.0.0.1 without a host; default of worker demo: 127.0.0.1:6060"`
	LogLevel  slog.Level `split_words:"true" default:"info" oneof:"debug,info,warn,error" desc:"the lowest level that is logged"`
	LogFormat string     `split_words:"true" default:"auto" oneof:"auto,text,json" desc:"text: coloured lines. json: one object per line. auto: text on a terminal, json elsewhere"`
	NVTX      bool       `default:"false" desc:"shows batches and stages in Nsight Systems; costs one call to the GPU per stage instead of one per batch"`

	read      readings            // variables, problems and warnings that Load has found
	operators []operator.Operator // parsed Operators
	filter    *filter.Filter      // parsed Filter
	whole     bool                // see IsWhole
}

// Result describes the messages that hold results.
type Result struct {
	IDs bool `default:"true" desc:"whether a result has its id in Nats-Msg-Id. false: in Millrace-Id, so that the server keeps no ids in memory. This takes effect only with exactly once"`
}

// State configures the states of a stateful operator, such as neardup. Each partition has its own state. The variables have no effect
// without such an operator.
type State struct {
	Records int    `default:"1000000" min:"1" max:"1073741824" desc:"a stateful operator compares each record with at least this many earlier records of its partition, and at most twice as many; see docs/exactly-once.md"`
	Bytes   Size   `default:"0" min:"0" max:"1048576GiB" desc:"the maximum memory for the states of the worker's partitions, per GPU or for the process. 0: half of each GPU's memory, or half of the memory left after buffers; see docs/operations.md"`
	Lost    string `default:"stop" oneof:"stop,begin" desc:"what the worker does if the log of a partition's state is lost or has other settings. stop: it ends with an error. begin: it begins an empty state; see docs/exactly-once.md"`
	Standby bool   `default:"true" desc:"keeps copies of the states of other workers' partitions within MILLRACE_STATE_BYTES, for fast takeovers"`
}

// NATS describes the connection to the NATS servers.
type NATS struct {
	URL   List   `form:"nats://, tls://, ws:// or wss:// addresses or host:port, separated by commas" desc:"the servers; empty: an embedded server on 127.0.0.1:4222"`
	Creds string `is:"file" form:"a readable file" desc:"the user's credentials (JWT and seed)"`
	NKey  string `is:"file" form:"a readable file" desc:"the user's NKey seed"`
	TLS   TLS
	JS    JS

	Connections int `default:"0" min:"0" max:"16" desc:"the number of connections to the server; 0: two with shared delivery and four with exclusive; see docs/streams.md"`
}

// TLS names the PEM files for the connection to NATS.
type TLS struct {
	CA   string `is:"file" form:"a readable file" desc:"PEM file of the authorities that may sign the server's certificate; empty: the system's authorities"`
	Cert string `is:"file" form:"a readable file" desc:"PEM file of the client's certificate"`
	Key  string `is:"file" form:"a readable file" desc:"PEM file of the client's private key"`

	First bool `default:"false" desc:"begins with TLS before the server sends anything, for a server with handshake_first in its tls block"`
}

// JS describes the JetStream API to use. At most one field may be set.
type JS struct {
	Domain string `is:"domain" form:"a JetStream domain, or empty" desc:"the JetStream domain of all streams, if the worker connects to a leaf node; empty: the server's domain"`
	Prefix string `is:"api" form:"subject tokens without wildcards, or empty" desc:"the prefix of JetStream's subjects if this account imports another account's API, such as from.hub for from.hub.STREAM.INFO.INGEST; see docs/security.md"`
}

// Embedded reports whether the worker starts an embedded NATS server. It does so if NATS.URL is empty.
func (c *Config) Embedded() bool { return len(c.NATS.URL) == 0 }

// IsSet reports whether the environment sets the variable with the given full name.
func (c *Config) IsSet(variable string) bool {
	_, set := c.read.set[variable]
	return set
}

// ParsedOperators returns the operators that Operators names, in order. It returns nil if they cannot be parsed. Load
// reports that problem.
func (c *Config) ParsedOperators() []operator.Operator { return c.operators }

// ParsedFilter returns the filter, or nil if all records are in results.
func (c *Config) ParsedFilter() *filter.Filter { return c.filter }

// Splitter returns the splitter that divides messages into records, with the limits of a frame.
func (c *Config) Splitter() frame.Splitter {
	s := frame.Splitter{
		Framing: c.Framing, Field: c.Field, NullMissing: c.FieldMissing == "null", Keep: c.KeepFields,
		MaxRecords: c.FrameRecords, MaxBytes: int64(c.FrameBytes),
	}
	if c.ResultFormat == operator.Annotated {
		s.Annotate = c.AnnotateAs
	}
	return s
}

// Warnings returns the findings that do not stop the worker, one sentence each. Examples are misspelt names, settings
// without effect, and addresses that other machines can reach.
func (c *Config) Warnings() []string { return c.read.warnings }
