{{/*
This file computes the minimum memory of a pod in bytes, like the worker before it allocates memory (internal/memory). Payloads in flight and
frames need additional memory, which depends on the server's max_payload. The worker checks this memory itself.
*/}}

{{/*
millrace.units returns the number of bytes of each unit. The worker accepts the units of sizes, and Kubernetes accepts the units of quantities.
*/}}
{{- define "millrace.units" -}}
# sizes and quantities
"": 1
Ki: 1024
Mi: 1048576
Gi: 1073741824
Ti: 1099511627776
k: 1000
M: 1000000
G: 1000000000
T: 1000000000000
# sizes
KiB: 1024
MiB: 1048576
GiB: 1073741824
TiB: 1099511627776
# quantities
m: 0.001
P: 1000000000000000
Pi: 1125899906842624
{{- end }}

{{/* millrace.bytes converts a size of the worker (4MiB) or a quantity of Kubernetes (4Gi, 4000M) to bytes. It is empty for other forms. */}}
{{- define "millrace.bytes" -}}
{{- $text := kindIs "float64" . | ternary (printf "%.0f" .) (toString .) -}}
{{- $units := include "millrace.units" . | fromYaml -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- if and (hasKey $units $unit) (regexMatch "^([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+|[A-Za-z]*)$" $text) -}}
{{ mulf (trimSuffix $unit $text) (get $units $unit) | floor | int64 }}
{{- end -}}
{{- end }}

{{/*
millrace.recordBytes returns the size of the results of one record on the device, without byte strings that grow with the record. The chart can't
read the results of operators of your own, so it uses operators.results.perRecord. By default, it assumes the minimum: one byte of results and
one byte of status for each operator.
*/}}
{{- define "millrace.recordBytes" -}}
{{- $bytes := .Values.operators.results.perRecord | default (mul 2 (include "millrace.ownOperators" . | fromJsonArray | len)) -}}
{{- range .Values.config.operators -}}
{{- $name := . | splitList "?" | first -}}
{{- if eq $name "minhash" -}}
{{- $hashes := regexFind "hashes=[0-9]+" . | trimPrefix "hashes=" | default "128" -}}
{{- $bytes = add $bytes (mul 4 (int64 $hashes)) -}}
{{- else if eq $name "crc32c" -}}
{{- $bytes = add $bytes 4 -}}
{{- else if eq $name "neardup" -}}
{{- $bands := regexFind "bands=[0-9]+" . | trimPrefix "bands=" | default "20" -}}
{{- $bytes = add $bytes (mul 8 (int64 $bands)) -}}
{{- else if eq $name "quality" -}}
{{- $bytes = add $bytes (contains "ngrams=true" . | ternary 177 153) -}}
{{- end -}}
{{- end -}}
{{ $bytes }}
{{- end }}

{{/* millrace.bufferBytes returns the host memory for the batches of all devices of a pod. */}}
{{- define "millrace.bufferBytes" -}}
{{- with .Values.config -}}
{{- $batches := mul 2 .lanes (include "millrace.devices" $) -}}
{{- $batch := add (mul (include "millrace.bytes" .batchBytes) (add 1 $.Values.operators.results.perByte)) (mul 4 .batchPayloads) (mul .batchPayloads (include "millrace.recordBytes" $)) -}}
{{- $onHost := or (eq $.Values.gpu.mode "none") (eq .device "host") -}}
{{- $scratch := 0 -}}
{{- if and $onHost (regexMatch "(^|,)(minhash|quality)([?,]|$)" (join "," .operators)) -}}
{{- $perByte := regexMatch "(^|,)quality[?]ngrams=true(,|$)" (join "," .operators) | ternary 12 4 -}}
{{- $scratch = min (mul $batches $perByte (include "millrace.bytes" .batchBytes)) (include "millrace.bytes" .scratchLimit) -}}
{{- end -}}
{{ add (mul $batches $batch ($onHost | ternary 2 1)) $scratch }}
{{- end -}}
{{- end }}

{{/*
millrace.frameBytes returns the minimum memory for one frame of the maximum size per device: its decompressed message, the decompressed
buffers of an Arrow stream, the values of a field, and kept columns. The worker also needs memory for the frame's results.
*/}}
{{- define "millrace.frameBytes" -}}
{{- with .Values.config -}}
{{- $copies := add (eq .decompress "none" | ternary 0 1) (has .framing (list "arrow" "auto") | ternary 1 0) -}}
{{- if and .field (ne .framing "arrow") $copies -}}
{{- $copies = add $copies 1 -}}
{{- end -}}
{{- if and .keepFields (has .framing (list "arrow" "auto")) -}}
{{- $copies = add $copies 2 -}}
{{- end -}}
{{ mul $copies (include "millrace.devices" $) (include "millrace.bytes" .frameBytes) }}
{{- end -}}
{{- end }}

{{- define "millrace.leastMemory" -}}
{{- $cuda := 0 -}}
{{- if not (or (eq .Values.gpu.mode "none") (eq .Values.config.device "host")) -}}
{{- $cuda = add 167772160 (mul 67108864 (sub (include "millrace.devices" .) 1)) -}}
{{- end -}}
{{- $server := empty .Values.nats.embedded.enabled | ternary 0 134217728 -}}
{{- $payloads := max 16777216 (include "millrace.frameBytes" .) -}}
{{- $used := add (include "millrace.bufferBytes" .) $cuda $server 50331648 (mul 2 $payloads) -}}
{{ max (add $used 25165824) (div (mul $used 16) 15) }}
{{- end }}

{{- define "millrace.memoryProblems" -}}
{{- $limits := get (.Values.resources | default dict) "limits" | default dict -}}
{{- $requests := get (.Values.resources | default dict) "requests" | default dict -}}
{{- $memory := get $limits "memory" | default "" -}}
{{- $least := include "millrace.leastMemory" . | int64 -}}
{{- $needs := printf "these settings need at least %dMi, including %dMi for the buffers of batches" (div (add $least 1048575) 1048576) (div (add (include "millrace.bufferBytes" . | int64) 1048575) 1048576) -}}
{{- $lower := "lower config.lanes, config.batchPayloads, config.batchBytes or hashes of minhash" -}}
{{- if gt (include "millrace.frameBytes" . | int64) 0 -}}
{{- $lower = printf "%s, or config.frameBytes" $lower -}}
{{- end -}}
{{- $limit := include "millrace.bytes" $memory -}}
{{- $own := include "millrace.bytes" .Values.config.memoryLimit | int64 -}}
{{- if and $memory (or (not $limit) (hasSuffix "iB" (toString $memory))) }}
resources.limits.memory is {{ $memory }}, which is not a quantity of Kubernetes: write it like 4Gi or 4096Mi
{{- else if and $limit (lt (int64 $limit) $least) }}
resources.limits.memory is {{ $memory }}, but {{ $needs }}: raise it, or {{ $lower }}
{{- else if and $limit (gt (include "millrace.bytes" (get $requests "memory" | default "") | int64) (int64 $limit)) }}
resources.requests.memory is {{ $requests.memory }}, more than resources.limits.memory ({{ $memory }}): lower it too
{{- end }}
{{- if and (gt $own 0) (lt $own $least) }}
config.memoryLimit is {{ .Values.config.memoryLimit }}, but {{ $needs }}: raise it or leave it at 0, or {{ $lower }}
{{- else if and $limit (gt $own (int64 $limit)) }}
config.memoryLimit is {{ .Values.config.memoryLimit }}, more than resources.limits.memory ({{ $memory }}), so the pod would be killed: leave it at 0
{{- end }}
{{- end }}
