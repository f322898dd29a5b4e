package main

import (
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/config"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
)

// checkMessages returns an error if the worker would refuse to start because its memory is too little for the largest message, for the
// largest frame, or for what it pulls ahead. budget is nil if it is unknown, and c is zero if there is no consumer yet.
func checkMessages(cfg *config.Config, budget *memoryBudget, devices int, server pull.Server, c jetstream.ConsumerConfig) []finding.Finding {
	if budget == nil || budget.plan.Payloads == 0 { // another finding says why
		return nil
	}
	options := ingestOptions(cfg, slog.New(slog.DiscardHandler), noObserver{}, nil)
	options.Memory = budget.plan.Payloads
	err := options.CheckMemory(server, c, devices, connections(cfg), int(cfg.BatchBytes))
	var little *inflight.MemoryError
	if !errors.As(err, &little) {
		return nil
	}
	return []finding.Finding{{Level: finding.Error, What: "memory for payloads", Found: "too little memory: " + little.Found, Advice: little.Advice}}
}

// ownServer is the embedded server that the worker would start.
type ownServer struct{}

// MaxPayload implements pull.Server.
func (ownServer) MaxPayload() int64 { return embedded.MaxPayload }
