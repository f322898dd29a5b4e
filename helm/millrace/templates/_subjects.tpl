{{/* This file checks subjects, prefixes and streams like the worker (internal/config/syntax.go). */}}

{{/* millrace.overlap returns a text if a subject can match both filters of a list. */}}
{{- define "millrace.overlap" -}}
{{- $a := index . 0 | splitList "." -}}
{{- $b := index . 1 | splitList "." -}}
{{- $answer := "" -}}
{{- range $i := min (len $a) (len $b) | int | until -}}
{{- $x := index $a $i -}}
{{- $y := index $b $i -}}
{{- if $answer -}}
{{- else if or (eq $x ">") (eq $y ">") -}}
{{- $answer = "yes" -}}
{{- else if and (ne $x $y) (ne $x "*") (ne $y "*") -}}
{{- $answer = "no" -}}
{{- end -}}
{{- end -}}
{{- if or (eq $answer "yes") (and (eq $answer "") (eq (len $a) (len $b))) -}}
yes
{{- end -}}
{{- end }}

{{/* millrace.under returns a text if a filter can match a prefix or a subject below it. The argument is a list of both. */}}
{{- define "millrace.under" -}}
{{ include "millrace.overlap" . }}{{ include "millrace.overlap" (list (index . 0) (printf "%s.>" (index . 1))) }}
{{- end }}

{{/* millrace.wrongFilter returns the problem of an invalid subject filter, or else nothing. */}}
{{- define "millrace.wrongFilter" -}}
{{- if not (regexMatch "^(>|([^.]+\\.)*[^.]+)$" .) -}}
has an empty part: put something between the dots
{{- else if regexMatch ">\\." . -}}
has > before its end: use > only as the last part, and * for one part
{{- else if regexMatch "([^.][*>]|[*>][^.])" . -}}
has a wildcard inside a part: * and > stand for whole parts
{{- else if regexMatch "^([$]|_INBOX([.]|$))" . -}}
begins with $ or _INBOX, which the server reserves: choose another
{{- end -}}
{{- end }}

{{/* millrace.subjectProblems returns the problems of the subjects of an input stream. The argument is one of millrace.shards. */}}
{{- define "millrace.subjectProblems" -}}
{{- $config := . }}
{{- $valid := list }}
{{- range $subject := .subjects }}
{{- with include "millrace.wrongFilter" $subject }}
config.subjects has {{ $subject | quote }}, which {{ . }}
{{- else }}
{{- range $valid }}
{{- if include "millrace.overlap" (list . $subject) }}
config.subjects has {{ . | quote }} and {{ $subject | quote }}, which match the same subjects: keep the wider one, because a consumer's filters must not overlap
{{- end }}
{{- end }}
{{- $valid = append $valid $subject }}
{{- end }}
{{- end }}
{{- range $value := list "resultPrefix" "deadletterPrefix" }}
{{- $prefix := get $config $value }}
{{- with include "millrace.wrongFilter" $prefix }}
config.{{ $value }} is {{ $prefix | quote }}, which {{ . }}
{{- end }}
{{- range $valid }}
{{- if include "millrace.under" (list . $prefix) }}
config.subjects has {{ . | quote }}, which matches what the worker publishes under config.{{ $value }} ({{ $prefix }}), so it would read its own output for ever: set another prefix or narrower subjects
{{- end }}
{{- end }}
{{- end }}
{{- if or (include "millrace.under" (list .resultPrefix .deadletterPrefix)) (include "millrace.under" (list .deadletterPrefix .resultPrefix)) }}
config.resultPrefix ({{ .resultPrefix }}) and config.deadletterPrefix ({{ .deadletterPrefix }}) overlap, so nobody could tell results from dead letters: set different ones
{{- end }}
{{- end }}

{{/* millrace.commitProblems returns the problems of the prefix of commit markers. The argument is one of millrace.shards. */}}
{{- define "millrace.commitProblems" -}}
{{- $config := . }}
{{- $prefix := .commitPrefix }}
{{- with include "millrace.wrongFilter" $prefix }}
config.commitPrefix is {{ $prefix | quote }}, which {{ . }}
{{- end }}
{{- if and (eq .delivery "exclusive") (ne .exactlyOnce "off") }}
{{- range .subjects }}
{{- if and (not (include "millrace.wrongFilter" .)) (include "millrace.under" (list . $prefix)) }}
config.subjects has {{ . | quote }}, which matches commit markers under config.commitPrefix ({{ $prefix }}), so the worker would read its own output for ever: set another prefix or narrower subjects
{{- end }}
{{- end }}
{{- range $value := list "resultPrefix" "deadletterPrefix" }}
{{- $other := get $config $value }}
{{- if or (include "millrace.under" (list $prefix $other)) (include "millrace.under" (list $other $prefix)) }}
config.commitPrefix ({{ $prefix }}) and config.{{ $value }} ({{ $other }}) overlap, so nobody could tell commit markers from other messages: set different ones
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "millrace.streamProblems" -}}
{{- with .Values.config }}
{{- if and (eq .exactlyOnce "required") (ne .delivery "exclusive") }}
config.exactlyOnce is required with config.delivery=shared, which can't store results exactly once: set config.delivery=exclusive, or config.exactlyOnce=auto
{{- end }}
{{- if and (not .resultIds) (ne .delivery "exclusive") }}
config.resultIds is false with config.delivery=shared, which needs the ids to recognize results that are stored already: set config.delivery=exclusive, or config.resultIds=true
{{- else if and (not .resultIds) (eq .exactlyOnce "off") }}
config.resultIds is false with config.exactlyOnce=off, and the worker then needs the ids to recognize results that are stored already: set config.exactlyOnce=auto or required, or config.resultIds=true
{{- end }}
{{- range $operator := .operators }}
{{- if eq "neardup" (splitList "?" $operator | first) }}
{{- if ne $.Values.config.delivery "exclusive" }}
config.operators has neardup with config.delivery={{ $.Values.config.delivery }}, and its results depend on the order of the records: set config.delivery=exclusive
{{- end }}
{{- $bands := regexFind "[?&]bands=[0-9]+" $operator | trimPrefix "?" | trimPrefix "&" | trimPrefix "bands=" | default "20" | int64 }}
{{- $rows := regexFind "[?&]rows=[0-9]+" $operator | trimPrefix "?" | trimPrefix "&" | trimPrefix "rows=" | default "13" | int64 }}
{{- if gt (mul $bands $rows) 1024 }}
config.operators has {{ $operator | quote }}, whose bands times rows is {{ mul $bands $rows }}: set them so that it is at most 1024
{{- end }}
{{- if include "millrace.manyStreams" $.Values.config }}
config.operators has neardup with several streams in config.stream, and only a worker of a single stream keeps a state: name one stream, and install a release for each
{{- end }}
{{- if eq $.Values.config.exactlyOnce "off" }}
config.operators has neardup with config.exactlyOnce=off, and its state is stored with the commit markers of exactly once: set config.exactlyOnce=auto or required
{{- end }}
{{- end }}
{{- end }}
{{- if and (eq .streamRetention "limits") (eq (toString .streamTrim) "true") }}
config.streamRetention=limits keeps every input, and config.streamTrim=true removes processed ones: set only one of them
{{- end }}
{{- if ge (include "millrace.milliseconds" .linger | float64) (include "millrace.milliseconds" .ackWait | float64) }}
config.linger is {{ .linger }}, not less than config.ackWait ({{ .ackWait }}), so the server would deliver payloads again that wait in a batch: set less
{{- end }}
{{- if gt (include "millrace.milliseconds" .batchDeadlineMin | float64) (include "millrace.milliseconds" .batchDeadlineMax | float64) }}
config.batchDeadlineMin is {{ .batchDeadlineMin }}, more than config.batchDeadlineMax ({{ .batchDeadlineMax }}): set at most that
{{- end }}
{{- end }}
{{- end }}
