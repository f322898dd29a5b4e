{{/*
millrace.dashboard returns the dashboard of a release. Grafana rejects a dashboard whose uid exists, or whose title exists in the folder. So each
release has its own uid and title. If the chart knows the workers' job, the dashboard shows this release's workers unless the user selects
others.
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
{{- /* The name of a Deployment's pod has two additional parts. Kubernetes may cut off the second part. */ -}}
{{- $_ := set $variable "allValue" (printf "%s-[a-z0-9]+(-[a-z0-9]*)?" (include "millrace.fullname" $ | replace "." "[.]")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toRawJson $dashboard }}
{{- end }}
