{{/*
This file turns files/rules.yaml into the rules of a release: it leaves out alerts, replaces severities, durations, thresholds and the address of
the runbooks, and restricts the queries to the release's own workers.
*/}}

{{/*
millrace.scrapeJob returns the label `job` of the workers' series, which the Prometheus operator derives from the monitor. It is empty if neither
monitor is enabled and no job is set.
*/}}
{{- define "millrace.scrapeJob" -}}
{{- if .Values.prometheusRule.job -}}
{{ .Values.prometheusRule.job }}
{{- else if .Values.podMonitor.enabled -}}
{{ .Release.Namespace }}/{{ include "millrace.fullname" . }}
{{- else if .Values.serviceMonitor.enabled -}}
{{ include "millrace.fullname" . }}-metrics
{{- end -}}
{{- end }}

{{/* millrace.ownSeries returns the matchers of the release's own series, or nothing if the job is unknown. */}}
{{- define "millrace.ownSeries" -}}
{{- with include "millrace.scrapeJob" . -}}
{{ printf "namespace=%q,job=%q" $.Release.Namespace . }}
{{- end -}}
{{- end }}

{{/* millrace.alertThresholds returns, for each alert and each of its thresholds, the text that precedes the number in the expression. */}}
{{- define "millrace.alertThresholds" -}}
MillraceBacklogGrowingLanesIdle: {threshold: "job:millrace_backlog:seconds > "}
MillraceBacklogGrowingLanesFull: {threshold: "job:millrace_backlog:seconds > "}
MillraceHeldBack: {threshold: "max_over_time(millrace_held_back_payloads[2m]) > "}
MillraceDeviceLost: {threshold: "[10m]) > "}
MillraceRestartsDeviceLost: {threshold: "[1h]) > ", thresholdSixHours: "[6h]) > "}
MillraceConsumerStalled: {threshold: "millrace_consumer_stalled > "}
MillracePartitionRestarts: {threshold: "[10m]) > "}
MillraceOverlapLow: {threshold: 'millrace_overlap_achieved:ratio_rate5m{device!="host"} < '}
MillraceBatchFillLow: {threshold: "device:millrace_batch_fill:ratio_rate5m < "}
MillraceScratchPoolNearCap: {threshold: "device:millrace_scratch_used:ratio_max5m > "}
MillraceAckHeadroomLow: {threshold: "pod:millrace_ack_headroom:p05_ratio_rate5m < "}
MillraceRedeliveries: {threshold: "pod:millrace_redeliveries:ratio_rate15m > "}
MillraceDeadLetters: {threshold: ") > "}
MillracePublishSlow: {threshold: '{stage="publish"} > '}
MillraceReconnectStorm: {threshold: "[15m]) > "}
{{- end }}

{{/* millrace.scoped restricts an expression ("expr") to the series with the matchers in "series". */}}
{{- define "millrace.scoped" -}}
{{- $expr := .expr -}}
{{- if .series -}}
{{- $selector := printf "{%s}" .series -}}
{{- $expr = regexReplaceAll "([a-z_]+:)?millrace_[a-z0-9_]+(:[a-z0-9_]+)?" $expr (printf "${0}%s" $selector) -}}
{{- $expr = replace (printf "%s{" $selector) (printf "{%s," .series) $expr -}}
{{- end -}}
{{ $expr }}
{{- end }}

{{/*
millrace.noWorkers returns the expression of MillraceNoWorkers for a release whose job is known. For a release that may be scaled to zero, the
alert fires only while the Deployment wants pods. This needs kube-state-metrics.
*/}}
{{- define "millrace.noWorkers" -}}
{{- $wanted := printf "kube_deployment_spec_replicas{namespace=%q,deployment=%q}" .Release.Namespace (include "millrace.fullname" .) -}}
{{- $least := eq .Values.autoscaling.mode "none" | ternary .Values.replicaCount .Values.autoscaling.minReplicas | int64 -}}
absent(millrace_build_info{ {{- include "millrace.ownSeries" . -}} }) {{ eq $least 0 | ternary (printf "and on (namespace) %s > 0" $wanted) (printf "unless on (namespace) %s == 0" $wanted) }}
{{- end }}

{{/* millrace.alertExpression returns the expression of an alert ("rule") with the thresholds in its values ("settings"). */}}
{{- define "millrace.alertExpression" -}}
{{- $root := .root -}}
{{- $name := .rule.alert -}}
{{- $expr := .rule.expr -}}
{{- $series := include "millrace.ownSeries" $root -}}
{{- if and $series (eq $name "MillraceNoWorkers") -}}
{{ include "millrace.noWorkers" $root }}
{{- else -}}
{{- range $key, $before := get (include "millrace.alertThresholds" $root | fromYaml) $name | default dict -}}
{{- $expr = regexReplaceAllLiteral (printf "%s[0-9.]+" (regexQuoteMeta $before)) $expr (printf "%s%v" $before (get $.settings $key)) -}}
{{- end -}}
{{- $expr = replace "time() - 3600" (printf "time() - %d" (int64 $root.Values.prometheusRule.operatorFaultsWindow)) $expr -}}
{{ include "millrace.scoped" (dict "expr" $expr "series" $series) }}
{{- end -}}
{{- end }}

{{/* millrace.alert returns an alert with the values of a release. The argument is a dict with "root", "rule" and "settings". */}}
{{- define "millrace.alert" -}}
{{- $annotations := merge (dict "runbook_url" (printf "%s/%s.md" (.root.Values.prometheusRule.runbooks | trimSuffix "/" | default "docs/runbooks") .rule.alert)) .rule.annotations -}}
{{- $labels := merge (dict "severity" .settings.severity) .rule.labels -}}
{{- $alert := merge (dict "expr" (include "millrace.alertExpression" .) "annotations" $annotations "labels" $labels) (omit .rule "for") -}}
{{- if not (regexMatch "^0[a-z]*$" .settings.for) -}}
{{- $_ := set $alert "for" .settings.for -}}
{{- end -}}
{{ toYaml $alert }}
{{- end }}

{{/*
millrace.recording returns a recording rule with the values of a release. It writes the goal into one of the rules for autoscalers. Both rules
for autoscalers get a label by which a HorizontalPodAutoscaler selects the release's series.
*/}}
{{- define "millrace.recording" -}}
{{- $rule := deepCopy .rule -}}
{{- if eq $rule.record "job:millrace_wanted_pods:max1h" -}}
{{- $scaling := .root.Values.autoscaling -}}
{{- $_ := set $rule "expr" (replace "(60 * " (printf "(%v * " $scaling.backlogSeconds) $rule.expr | replace "1.25 * " (printf "%v * " $scaling.lagFactor)) -}}
{{- end -}}
{{- if and .series (has $rule.record (list "job:millrace_wanted_pods:max1h" "job:millrace_lag:max")) -}}
{{- $_ := set $rule "labels" (dict "deployment" (include "millrace.fullname" .root)) -}}
{{- end -}}
{{- $_ := set $rule "expr" (include "millrace.scoped" (dict "expr" $rule.expr "series" .series)) -}}
{{ toYaml $rule }}
{{- end }}

{{/* millrace.ruleGroups returns the groups of the PrometheusRule. */}}
{{- define "millrace.ruleGroups" -}}
{{- $root := . -}}
{{- $series := include "millrace.ownSeries" . -}}
{{- $groups := list -}}
{{- range $group := (.Files.Get "files/rules.yaml" | fromYaml).groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- if hasKey $rule "alert" -}}
{{- $settings := get $root.Values.prometheusRule.alerts $rule.alert -}}
{{- if $settings.enabled -}}
{{- $rules = append $rules (include "millrace.alert" (dict "root" $root "rule" $rule "settings" $settings) | fromYaml) -}}
{{- end -}}
{{- else -}}
{{- $rules = append $rules (include "millrace.recording" (dict "root" $root "rule" $rule "series" $series) | fromYaml) -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (dict "name" $group.name "rules" $rules) -}}
{{- end -}}
{{- end -}}
{{ toYaml $groups }}
{{- end }}
