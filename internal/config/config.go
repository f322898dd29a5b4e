// Package config reads the worker's configuration from environment variables that begin with MILLRACE_.
//
// The Config struct is the one place that names them: defaults, bounds and meanings are tags of its fields.
// The table of `worker config`, docs/configuration.md and every error message are made from those tags.
package config

import (
	"log/slog"
	"time"
)

// Prefix begins the name of every variable, followed by an underscore.
const Prefix = "MILLRACE"

// Config is the worker's whole configuration. A field's variable is Prefix, an underscore and the field's
// name in upper case, words split by underscores: BatchBytes is MILLRACE_BATCH_BYTES.
//
// Tags: `default` is the value of a variable that is not set; `desc` its meaning; `min` and `max` bound a
// number, size or duration; `oneof` lists the words it may be; `form` says in words what it takes where no
// other tag does.
//
// The tag `envconfig` must not be used: that library then reads the name without the prefix too, and
// STREAM or DEVICE of somebody else's would configure the worker.
type Config struct {
	NATS NATS

	DataDir          string `split_words:"true" default:"millrace-data" form:"a directory" desc:"where the embedded server stores its streams"`
	Stream           string `split_words:"true" default:"INGEST" form:"a stream name" desc:"the input stream"`
	Subjects         List   `split_words:"true" default:"ingest.>" form:"subject filters, comma separated" desc:"subject filters of the input, comma separated"`
	Consumer         string `split_words:"true" default:"millrace" form:"a consumer name" desc:"the durable pull consumer"`
	ResultStream     string `split_words:"true" default:"RESULTS" form:"a stream name" desc:"the stream that stores results"`
	ResultPrefix     string `split_words:"true" default:"results" form:"subject tokens without wildcards, like results" desc:"takes the place of an input subject's first token in its result's subject: ingest.web.en becomes results.web.en"`
	DeadletterPrefix string `split_words:"true" default:"deadletter" form:"subject tokens without wildcards, like deadletter" desc:"likewise, for payloads that are given up"`
	Provision        bool   `split_words:"true" default:"false" but:", true when embedded" desc:"create the streams and the consumer if they are missing"`

	Delivery   string `split_words:"true" default:"shared" oneof:"shared,exclusive" desc:"shared: any number of workers on one consumer, each input acknowledged by itself. exclusive: the stream is cut into partitions, each of which one worker has to itself, in order and with one acknowledgement a batch; see docs/delivery.md"`
	Partitions int    `split_words:"true" default:"8" min:"1" max:"256" desc:"how many partitions the input stream is cut into, for exclusive delivery: the same for all workers, and what the stream's subject transform says"`
	Ack        string `split_words:"true" default:"sent" oneof:"sent,confirmed" desc:"sent: an acknowledgement that is lost means a second result, which the result stream drops inside its duplicate window. confirmed: the server confirms each acknowledgement"`

	MaxDeliver    int           `split_words:"true" default:"10" min:"1" max:"1000" desc:"a payload delivered more often is tried alone, and goes to the dead-letter subject if it fails"`
	AckWait       time.Duration `split_words:"true" default:"30s" min:"1s" max:"1h" desc:"how long the server waits for an acknowledgement before it delivers again; of the consumer when it is provisioned"`
	MaxAckPending int           `split_words:"true" default:"0" min:"0" max:"10000000" desc:"payloads delivered and not yet acknowledged, of the consumer when it is provisioned; 0: as many as the lanes hold"`

	Operators    List   `split_words:"true" default:"crc32c,minhash" form:"operators, comma separated, like crc32c,minhash?k=24" desc:"operators in order, comma separated, parameters as a query: minhash?k=24&hashes=128&seed=1"`
	ResultFormat string `split_words:"true" default:"json" oneof:"json,binary" desc:"how results are encoded; binary is a fixed little-endian layout, see docs/results.md"`

	Device  string `split_words:"true" default:"auto" oneof:"auto,cuda,host" desc:"what computes: cuda is a GPU, host the CPU cores, auto a GPU if there is one"`
	Devices List   `split_words:"true" default:"all" form:"all, or GPU ordinals and UUIDs, like 0,1 or GPU-..." desc:"the GPUs to drive: all, or ordinals and UUIDs, comma separated"`
	Kernels string `split_words:"true" form:"the path of libmillrace.so" desc:"path of libmillrace.so; empty: beside the executable, then the system's path"`

	Lanes         int           `split_words:"true" default:"4" min:"1" max:"64" desc:"streams in flight for each device"`
	BatchBytes    Size          `split_words:"true" default:"4MiB" min:"4KiB" max:"1GiB" desc:"a batch closes at this size"`
	BatchPayloads int           `split_words:"true" default:"8192" min:"1" max:"1048576" desc:"a batch closes at this count of payloads"`
	Linger        time.Duration `split_words:"true" default:"2ms" min:"0s" max:"1m" desc:"a batch closes when its oldest payload has waited so long; up to 100ms later while others enough to keep the server busy are being stored"`
	ScratchLimit  Size          `split_words:"true" default:"1GiB" min:"2MiB" max:"1024GiB" desc:"cap of each device's scratch pool"`
	MemoryLimit   Size          `split_words:"true" default:"0" min:"0" max:"1048576GiB" desc:"memory that the process may take: buffers, payloads in hand, their results, and everything else; 0: what its cgroup allows, or half of the machine's; see docs/operations.md"`

	BatchDeadlineMin time.Duration `split_words:"true" default:"10s" min:"100ms" max:"1h" desc:"a batch that is on the device for much longer than is usual, and for longer than this, means that the device hangs: the worker ends with exit status 70. Only time in which the process runs counts"`
	BatchDeadlineMax time.Duration `split_words:"true" default:"2m" min:"100ms" max:"1h" desc:"a batch that is on the device for longer than this means that the device hangs, whatever is usual; also before the first batch has come back. Raise it where one batch can take longer"`

	DrainTimeout time.Duration `split_words:"true" default:"25s" min:"1s" max:"1h" desc:"how long the worker may take to finish its work when it is told to stop; keep it below the supervisor's grace period"`

	HTTPAddr  string     `split_words:"true" default:":9464" form:"host:port, or nothing for off" desc:"serves /metrics, /healthz and /readyz; empty: off"`
	DebugAddr string     `split_words:"true" form:"host:port, or nothing for off" desc:"serves the timeline, /trace?seconds=N and /debug/pprof; without a host on 127.0.0.1; empty: off, but in worker demo 127.0.0.1:6060 if it is not set"`
	LogLevel  slog.Level `split_words:"true" default:"info" oneof:"debug,info,warn,error" desc:"the least level that is logged"`
	LogFormat string     `split_words:"true" default:"auto" oneof:"auto,text,json" desc:"text is coloured lines, json one object a line, auto text on a terminal and json elsewhere"`
	NVTX      bool       `default:"false" desc:"names batches and their stages on the timeline of an NVIDIA profiler (Nsight Systems); costs a call to the GPU for each stage instead of one for the batch"`

	read readings
}

// NATS is how to reach the NATS servers.
type NATS struct {
	URL   List   `form:"nats://, tls://, ws:// or wss:// addresses or host:port, comma separated" desc:"server addresses, comma separated; empty: an embedded server on 127.0.0.1:4222"`
	Creds string `form:"a readable file" desc:"credentials file (JWT and seed) of the user"`
	NKey  string `form:"a readable file" desc:"file with the user's NKey seed"`
	TLS   TLS

	Connections int `default:"0" min:"0" max:"16" desc:"connections to the server; 0: as measurement says, one with shared delivery and four with exclusive, see docs/delivery.md"`
}

// TLS is PEM files for the connection to NATS.
type TLS struct {
	CA   string `form:"a readable file" desc:"certificates that the server's is checked against, PEM; empty: the system's"`
	Cert string `form:"a readable file" desc:"the client's certificate, PEM"`
	Key  string `form:"a readable file" desc:"the client's private key, PEM"`
}

// Embedded says whether the worker starts a NATS server of its own, because no address is given.
func (c *Config) Embedded() bool { return len(c.NATS.URL) == 0 }

// IsSet says whether the environment sets a variable, given its whole name. A command with another default
// than the worker's asks this before it puts its own.
func (c *Config) IsSet(variable string) bool {
	_, set := c.read.set[variable]
	return set
}

// Warnings are findings that do not stop the worker, one sentence each: names that look misspelt, settings
// without effect, addresses open to everybody.
func (c *Config) Warnings() []string { return c.read.warnings }
