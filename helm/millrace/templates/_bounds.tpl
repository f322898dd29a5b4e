{{/* This file checks durations, sizes and GPUs like the worker (internal/config). helm/test compares both checks. */}}

{{/* millrace.durationBounds returns the shortest and the longest duration of each key of config. */}}
{{- define "millrace.durationBounds" -}}
ackWait: [1s, 1h]
batchDeadlineMax: [100ms, 1h]
batchDeadlineMin: [100ms, 1h]
deadletterMaxAge: [0s, 87600h]
drainTimeout: [1s, 1h]
linger: [0s, 1m]
resultMaxAge: [0s, 87600h]
streamMaxAge: [0s, 87600h]
{{- end }}

{{/* millrace.sizeBounds returns the smallest and the largest size of each key of config. */}}
{{- define "millrace.sizeBounds" -}}
batchBytes: [4KiB, 1GiB]
deadletterMaxBytes: ["0", 1048576GiB]
frameBytes: [4KiB, 4095MiB]
memoryLimit: ["0", 1048576GiB]
resultMaxBytes: ["0", 1048576GiB]
scratchLimit: [2MiB, 1024GiB]
stateBytes: ["0", 1048576GiB]
streamMaxBytes: ["0", 1048576GiB]
{{- end }}

{{- define "millrace.boundProblems" -}}
{{- $config := .Values.config }}
{{- range $key, $bounds := include "millrace.durationBounds" . | fromYaml }}
{{- $value := get $config $key }}
{{- $is := include "millrace.milliseconds" $value | float64 }}
{{- include "millrace.boundProblem" (dict "key" $key "value" $value "bounds" $bounds "what" "a duration" "low" (lt $is (include "millrace.milliseconds" (first $bounds) | float64)) "high" (gt $is (include "millrace.milliseconds" (last $bounds) | float64))) }}
{{- if and (hasSuffix "MaxAge" $key) (gt $is 0.0) (lt $is 60000.0) }}
config.{{ $key }} is {{ $value }}, less than 1m: set at least 1m, or 0s for no limit
{{- end }}
{{- end }}
{{- range $key, $bounds := include "millrace.sizeBounds" . | fromYaml }}
{{- $value := get $config $key }}
{{- $is := include "millrace.sizeNumber" $value | float64 }}
{{- include "millrace.boundProblem" (dict "key" $key "value" $value "bounds" $bounds "what" "a size" "low" (lt $is (include "millrace.sizeNumber" (first $bounds) | float64)) "high" (gt $is (include "millrace.sizeNumber" (last $bounds) | float64))) }}
{{- if and (hasSuffix "MaxBytes" $key) (gt $is 0.0) (lt $is 16777216.0) }}
config.{{ $key }} is {{ $value }}, less than 16MiB: set at least 16MiB, or "0" for no limit
{{- end }}
{{- end }}
{{- end }}

{{/* millrace.boundProblem returns the problem of a value that is too low or too high, or else nothing. The argument is a dict. */}}
{{- define "millrace.boundProblem" -}}
{{- if or .low .high }}
config.{{ .key }} is {{ .value }}, {{ .low | ternary (printf "less than %s" (first .bounds)) (printf "more than %s" (last .bounds)) }}: set {{ .what }} from {{ first .bounds }} to {{ last .bounds }}
{{- end }}
{{- end }}

{{/* millrace.sizeNumber returns the number of bytes of a size in the worker's syntax, even if the number doesn't fit into an integer. */}}
{{- define "millrace.sizeNumber" -}}
{{- $unit := regexFind "[A-Za-z]*$" . -}}
{{ mulf (trimSuffix $unit . | float64) (get (include "millrace.units" . | fromYaml) $unit) }}
{{- end }}

{{/* Inside a pod, the ordinals of its GPUs start at 0. With the user's own ResourceClaimTemplate, the chart doesn't know the number of GPUs. */}}
{{- define "millrace.deviceProblems" -}}
{{- $devices := splitList "," .Values.config.devices }}
{{- $gpus := int64 .Values.gpu.count }}
{{- $counted := not (or (eq .Values.gpu.mode "none") (and (eq .Values.gpu.mode "dra") .Values.gpu.dra.existingResourceClaimTemplate)) }}
{{- $seen := list }}
{{- range $device := $devices }}
{{- if and (eq $device "all") (gt (len $devices) 1) }}
config.devices is {{ join "," $devices }}, and all excludes other entries: set all, or the GPUs alone
{{- else if has $device $seen }}
config.devices names {{ $device }} twice: name each GPU once
{{- else if not (regexMatch "^(all|0|[1-9][0-9]{0,2}|10[01][0-9]|102[0-3]|GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$" $device) }}
config.devices has {{ $device | quote }}, which is neither the ordinal nor the UUID of a GPU: set all, ordinals from 0 as in 0,1, or UUIDs as nvidia-smi -L prints them
{{- else if and $counted (regexMatch "^[0-9]+$" $device) (ge (int64 $device) $gpus) }}
config.devices names the GPU {{ $device }}, but a pod has only {{ $gpus }}, with ordinals from 0: set config.devices=all, or raise gpu.count
{{- end }}
{{- $seen = append $seen $device }}
{{- end }}
{{- end }}
