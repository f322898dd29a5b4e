//go:build cgo

package cuda_test

import (
	"context"
	"time"
)

// patience bounds what must happen.
const patience = 30 * time.Second

// shortly is a context for a check of a device that answers at once.
func shortly() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	context.AfterFunc(ctx, cancel)
	return ctx
}
