{{/*
millrace.seconds converts a Go duration (1m30s, 2.5s, 500ms) to whole seconds, rounded up. Templates have no function for that. The
schema has validated the argument, so every part of it is a number and a unit.
*/}}
{{- define "millrace.seconds" -}}
{{- $units := dict "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $milliseconds := 0.0 -}}
{{- range regexFindAll "[0-9.]+(h|ms|m|s)" . -1 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $milliseconds = addf $milliseconds (mulf (trimSuffix $unit .) (get $units $unit)) -}}
{{- end -}}
{{ divf $milliseconds 1000 | ceil | int64 }}
{{- end }}

{{/*
millrace.gracePeriod returns how long a pod may take from SIGTERM to its end, in seconds: the drain timeout plus a margin for giving
back unfinished messages and for closing devices and connections.
*/}}
{{- define "millrace.gracePeriod" -}}
{{ add (include "millrace.seconds" .Values.config.drainTimeout) .Values.terminationGraceMarginSeconds }}
{{- end }}
