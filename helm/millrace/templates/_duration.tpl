{{/*
millrace.seconds is a duration as Go writes it (1m30s, 2.5s, 500ms) in whole seconds, rounded up. Templates have no function
for that. What it is given has passed the schema, so every part of it is a number and a unit.
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
millrace.gracePeriod is how long a pod may take from SIGTERM to its end: the drain, and a margin for giving back what was not
finished and for closing devices and connections.
*/}}
{{- define "millrace.gracePeriod" -}}
{{ add (include "millrace.seconds" .Values.config.drainTimeout) .Values.terminationGraceMarginSeconds }}
{{- end }}
