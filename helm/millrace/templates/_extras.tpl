{{/* This file checks what users add to objects: labels, variables, volumes, containers and hooks. */}}

{{- define "millrace.extraProblems" -}}
{{- include "millrace.labelProblems" . }}
{{- include "millrace.variableProblems" . }}
{{- include "millrace.volumeProblems" . }}
{{- include "millrace.containerProblems" . }}
{{- include "millrace.hookProblems" . }}
{{- end }}

{{/* A duplicate label is invalid. A user's label that replaces one of the chart's labels breaks selectors. */}}
{{- define "millrace.labelProblems" -}}
{{- $values := .Values }}
{{- $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" }}
{{- range $where := list "commonLabels" "podLabels" "podMonitor.labels" "serviceMonitor.labels" "prometheusRule.labels" "dashboard.labels" }}
{{- $part := splitList "." $where | first | get $values }}
{{- $labels := $part }}
{{- if contains "." $where }}{{ $labels = get $part "labels" }}{{ end }}
{{- range $label, $value := $labels | default dict }}
{{- if has $label $own }}
{{ $where }} has {{ $label }}, which the chart sets itself: remove it{{ eq $label "app.kubernetes.io/name" | ternary ", or set nameOverride" "" }}
{{- else if and (ne $where "commonLabels") (ne $where "podLabels") (hasKey ($values.commonLabels | default dict) $label) }}
{{ $where }} and commonLabels both have {{ $label }}: set it in one of them
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* If a variable is set twice, Kubernetes uses the last value, but the chart checks and uses only its own value. */}}
{{- define "millrace.variableProblems" -}}
{{- $seen := list }}
{{- $gpu := include "millrace.gpuEnvironment" . }}
{{- range .Values.extraEnv }}
{{- if hasPrefix "MILLRACE_" .name }}
extraEnv has {{ .name }}, which the chart sets itself: set config.{{ trimPrefix "MILLRACE_" .name | lower | camelcase | untitle }} or the value for it
{{- else if contains (printf "name: %s\n" .name) $gpu }}
extraEnv has {{ .name }}, which the chart sets itself with gpu.mode={{ $.Values.gpu.mode }}: remove it
{{- else if has .name $seen }}
extraEnv has {{ .name }} twice: remove one
{{- end }}
{{- $seen = append $seen .name }}
{{- end }}
{{- end }}

{{- define "millrace.volumeProblems" -}}
{{- $own := list "tmp" "nats" "tls" "data" "sources" "config-map" "volume" "cache" }}
{{- $names := list }}
{{- range .Values.extraVolumes }}
{{- $name := get . "name" }}
{{- if not $name }}
extraVolumes has a volume without a name: give it one, and use it in extraVolumeMounts
{{- else if has $name $own }}
extraVolumes has {{ $name }}, a name that the chart uses itself: choose another
{{- else if has $name $names }}
extraVolumes has {{ $name }} twice: remove or rename one
{{- end }}
{{- $names = append $names $name }}
{{- end }}
{{- range .Values.extraVolumeMounts }}
{{- $name := get . "name" }}
{{- if not (has $name (concat $own $names)) }}
extraVolumeMounts mounts {{ $name | quote }}, which no volume in extraVolumes is called: add it there, or correct the name
{{- else if not (get . "mountPath") }}
extraVolumeMounts mounts {{ $name }} without a mountPath: set where
{{- end }}
{{- end }}
{{- end }}

{{- define "millrace.containerProblems" -}}
{{- $seen := list "worker" "check" }}
{{- range $where := list "initContainers" "extraContainers" }}
{{- range get $.Values $where | default list }}
{{- if has .name $seen }}
{{ $where }} has {{ .name }}, a name that another container of the pod has: choose another
{{- end }}
{{- $seen = append $seen .name }}
{{- end }}
{{- end }}
{{- end }}

{{/* If a hook's command isn't in the image, the hook fails but the pod continues, so nobody notices. */}}
{{- define "millrace.hookProblems" -}}
{{- range $hook, $handler := .Values.lifecycle }}
{{- if and (hasKey ($handler | default dict) "sleep") (semverCompare "<1.30.0-0" $.Capabilities.KubeVersion.Version) }}
lifecycle.{{ $hook }}.sleep needs Kubernetes 1.30, and this is {{ $.Capabilities.KubeVersion.Version }}: remove it, because the worker drains on SIGTERM itself
{{- end }}
{{- $command := get (get ($handler | default dict) "exec" | default dict) "command" | default (list "") | first | base }}
{{- if has $command (list "sh" "bash" "ash" "sleep" "curl" "wget" "kill") }}
lifecycle.{{ $hook }} runs {{ $command }}, which the image doesn't have: {{ eq $hook "preStop" | ternary "remove it, because the worker drains on SIGTERM itself, or use sleep: {seconds: ...}" "run a command of the worker, or use initContainers" }}
{{- end }}
{{- end }}
{{- end }}
