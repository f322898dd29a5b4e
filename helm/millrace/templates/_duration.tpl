{{/*
millrace.milliseconds converts a Go duration (1m30s, 2.5s, 500ms) to milliseconds. Templates have no function for this. The schema has validated
the argument, so each of its parts is a number and a unit.
*/}}
{{- define "millrace.milliseconds" -}}
{{- $units := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $milliseconds := 0.0 -}}
{{- range regexFindAll "[0-9.]+(h|ms|m|s)" . -1 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $milliseconds = addf $milliseconds (mulf (trimSuffix $unit .) (get $units $unit)) -}}
{{- end -}}
{{ $milliseconds }}
{{- end }}

{{/* millrace.seconds converts a Go duration to whole seconds, rounded up. */}}
{{- define "millrace.seconds" -}}
{{ divf (include "millrace.milliseconds" .) 1000 | ceil | int64 }}
{{- end }}

{{/*
millrace.gracePeriod returns the maximum time in which a pod ends, in seconds. It is the sum of the sleep of lifecycle.preStop, the drain
timeout, and a margin. In the margin, the worker gives back unfinished messages and closes devices and connections.
*/}}
{{- define "millrace.gracePeriod" -}}
{{ add (include "millrace.preStopSleep" .) (include "millrace.seconds" .Values.config.drainTimeout) .Values.terminationGraceMarginSeconds }}
{{- end }}

{{/* millrace.preStopSleep returns the seconds of lifecycle.preStop.sleep, which are part of the grace period. */}}
{{- define "millrace.preStopSleep" -}}
{{- $preStop := get (.Values.lifecycle | default dict) "preStop" | default dict -}}
{{- $sleep := get $preStop "sleep" | default dict -}}
{{ get $sleep "seconds" | default 0 | int64 }}
{{- end }}
