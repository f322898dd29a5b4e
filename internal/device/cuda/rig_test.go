//go:build cgo

package cuda_test

import (
	"context"
	"time"
)

// patience is the maximum wait for an event that must happen.
const patience = 3 * time.Minute

// shortly returns a context for a check of a device that answers at once.
func shortly() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	context.AfterFunc(ctx, cancel)
	return ctx
}
