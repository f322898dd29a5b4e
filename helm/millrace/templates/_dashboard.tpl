{{/*
millrace.dashboard returns the dashboard of a release. Grafana refuses dashboards that share a uid, or a title in a folder, so each release has
its own. If the chart knows the workers' job, the dashboard shows this release's workers unless its reader chooses others.
*/}}
{{- define "millrace.dashboard" -}}
{{- $dashboard := .Files.Get "files/dashboard.json" | fromJson -}}
{{- $release := printf "%s/%s" .Release.Namespace (include "millrace.fullname" .) -}}
{{- $_ := set $dashboard "uid" (printf "millrace-%s" (sha256sum $release | trunc 12)) -}}
{{- $_ := set $dashboard "title" (printf "Millrace %s" $release) -}}
{{- if include "millrace.scrapeJob" . -}}
{{- range $variable := $dashboard.templating.list -}}
{{- if eq $variable.name "namespace" -}}
{{- $_ := set $variable "current" (dict "selected" true "text" (list $.Release.Namespace) "value" (list $.Release.Namespace)) -}}
{{- else if eq $variable.name "pod" -}}
{{- /* The names of a Deployment's pods have two more parts, the second of which Kubernetes may cut off. */ -}}
{{- $_ := set $variable "allValue" (printf "%s-[a-z0-9]+(-[a-z0-9]*)?" (include "millrace.fullname" $ | replace "." "[.]")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toRawJson $dashboard }}
{{- end }}
