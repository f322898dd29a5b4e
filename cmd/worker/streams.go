package main

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/config"
	"millrace/internal/ingest/topology"
	"millrace/internal/ingest/trim"
)

// kept returns what the streams keep that the worker creates.
func kept(cfg *config.Config) topology.Kept {
	k := topology.Kept{
		Trim: cfg.StreamRetention == "auto", AskedEverything: cfg.StreamRetention == "limits",
		Inputs:       topology.NewBounds(cfg.StreamMaxAge, int64(cfg.StreamMaxBytes)),
		Results:      topology.NewBounds(cfg.ResultMaxAge, int64(cfg.ResultMaxBytes)),
		DeadLetters:  topology.NewBounds(cfg.DeadletterMaxAge, int64(cfg.DeadletterMaxBytes)),
		Replicas:     cfg.ProvisionReplicas,
		AskedStorage: cfg.IsChanged("MILLRACE_PROVISION_STORAGE"),
	}
	for variable, asked := range map[string]*bool{
		"MILLRACE_STREAM_MAX_AGE": &k.Inputs.AskedAge, "MILLRACE_STREAM_MAX_BYTES": &k.Inputs.AskedBytes,
		"MILLRACE_RESULT_MAX_AGE": &k.Results.AskedAge, "MILLRACE_RESULT_MAX_BYTES": &k.Results.AskedBytes,
		"MILLRACE_DEADLETTER_MAX_AGE": &k.DeadLetters.AskedAge, "MILLRACE_DEADLETTER_MAX_BYTES": &k.DeadLetters.AskedBytes,
	} {
		*asked = cfg.IsChanged(variable)
	}
	return k
}

// trimPolicy returns whether the worker removes processed inputs.
func trimPolicy(cfg *config.Config) trim.Policy {
	switch {
	case cfg.StreamTrim == "true":
		return trim.Always
	case cfg.StreamTrim == "false" || cfg.StreamRetention == "limits":
		return trim.Never
	}
	return trim.Auto
}

// exactlyOnce returns whether exclusive delivery stores results exactly once.
func exactlyOnce(cfg *config.Config) topology.ExactlyOnce {
	return map[string]topology.ExactlyOnce{"required": topology.Required, "off": topology.Off}[cfg.ExactlyOnce] // auto is the zero value
}

// storage returns where the streams are stored that the worker creates.
func storage(cfg *config.Config) jetstream.StorageType {
	if cfg.ProvisionStorage == "memory" {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// demoAge is how long the streams of the demo keep a message. The demo removes them when it ends.
const demoAge = 24 * time.Hour

// demoStreams bounds the streams of the demo by age alone, so that any number of payloads fits.
func demoStreams(cfg *config.Config) {
	cfg.StreamMaxAge, cfg.ResultMaxAge, cfg.DeadletterMaxAge = demoAge, demoAge, demoAge
	cfg.StreamMaxBytes, cfg.ResultMaxBytes, cfg.DeadletterMaxBytes = 0, 0, 0
}
