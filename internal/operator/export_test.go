package operator

import (
	"millrace/internal/device"
	"millrace/internal/operator/simd"
)

// MinhashVariants returns the names of the implementations of minhash's host kernel that this processor supports.
func MinhashVariants() (names []string) {
	for _, v := range minhashVariants {
		names = append(names, v.Name)
	}
	return names
}

// HostKernelsWith returns HostKernels with the named variant of minhash.
func HostKernelsWith(variant string) []device.HostKernel {
	kernels := HostKernels()
	for i, kernel := range kernels {
		if minhash, ok := kernel.(minhashHost); ok {
			for _, v := range minhashVariants {
				if v.Name == variant {
					kernels[i] = minhashWith{minhash, v.Sign}
				}
			}
		}
	}
	return kernels
}

// minhashWith is the host kernel with another inner loop.
type minhashWith struct {
	minhashHost
	sign simd.SignFunc
}

func (m minhashWith) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := m.minhashHost.Bind(params)
	if err != nil {
		return nil, err
	}
	kernel := bound.(minhashKernel)
	kernel.sign = m.sign
	return kernel, nil
}
