{{/* Names and labels, as charts have them. */}}
{{- define "gpu-rebalancer.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "gpu-rebalancer.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "gpu-rebalancer.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "gpu-rebalancer.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "gpu-rebalancer.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gpu-rebalancer.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gpu-rebalancer.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "gpu-rebalancer.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gpu-rebalancer.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "gpu-rebalancer.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "gpu-rebalancer.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{/* The Deployments as a map of name suffix to {roles, replicas, resources}: one for everything, or those of split. */}}
{{- define "gpu-rebalancer.parts" -}}
{{- if .Values.split -}}
{{ toYaml .Values.split }}
{{- else -}}
"": {{ dict "roles" .Values.roles "replicas" .Values.replicas | toJson }}
{{- end -}}
{{- end }}

{{/* Names of the Deployments, as a list in JSON. */}}
{{- define "gpu-rebalancer.deployments" -}}
{{- $names := list -}}
{{- range $name, $_ := include "gpu-rebalancer.parts" . | fromYaml -}}
{{- $names = append $names (printf "%s%s" (include "gpu-rebalancer.fullname" $) (ternary "" (printf "-%s" $name) (eq $name ""))) -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{/* What the schema cannot say. Included once, by the settings. */}}
{{- define "gpu-rebalancer.checked" -}}
{{- range $name, $part := include "gpu-rebalancer.parts" . | fromYaml -}}
{{- if and (gt (int (default 1 $part.replicas)) 1) (not $.Values.leaderElection.enabled) (or (has "act" $part.roles) (has "collect" $part.roles)) -}}
{{- fail (printf "replicas: %d replicas with roles %s need leaderElection.enabled; without it run one" (int $part.replicas) (join "," $part.roles)) -}}
{{- end -}}
{{- end -}}
{{- if not .Values.policy.pools -}}
{{- fail "policy.pools: at least one pool is needed" -}}
{{- end -}}
{{- if eq .Values.profile "shadow" -}}
{{- range $name, $pool := .Values.policy.pools -}}
{{- if eq (toString (default "shadow" $pool.mode)) "act" -}}
{{- fail (printf "policy.pools.%s.mode: act needs profile=act; profile shadow gives no right to touch a node" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.kafka.secret.passwordKey (not .Values.kafka.secret.name) -}}
{{- fail "kafka.secret.passwordKey: kafka.secret.name is needed with it" -}}
{{- end -}}
{{- $l := .Values.leaderElection -}}
{{- if not (and (gt (float64 $l.leaseDuration) (float64 $l.renewDeadline)) (gt (float64 $l.renewDeadline) (float64 $l.retryPeriod))) -}}
{{- fail "leaderElection: leaseDuration must exceed renewDeadline, and renewDeadline must exceed retryPeriod" -}}
{{- end -}}
{{- end }}

{{/* The settings file, as a map in YAML. */}}
{{- define "gpu-rebalancer.settings" -}}
{{- include "gpu-rebalancer.checked" . -}}
{{- $k := .Values.kafka -}}
{{- $kafka := dict "bootstrap" $k.bootstrap "protocol" $k.protocol "timeout" $k.timeout -}}
{{- if hasPrefix "SASL" $k.protocol -}}
{{- $_ := set $kafka "mechanism" $k.mechanism -}}
{{- with $k.username }}{{ $_ := set $kafka "username" . }}{{ end -}}
{{- if $k.secret.passwordKey }}{{ $_ := set $kafka "password_file" (printf "/etc/gpu-rebalancer/kafka/%s" $k.secret.passwordKey) }}{{ end -}}
{{- if $k.secret.tokenKey }}{{ $_ := set $kafka "token_file" (printf "/etc/gpu-rebalancer/kafka/%s" $k.secret.tokenKey) }}{{ end -}}
{{- if $k.tokenAudience }}{{ $_ := set $kafka "token_file" "/var/run/secrets/kafka/token" }}{{ end -}}
{{- end -}}
{{- if $k.secret.caKey }}{{ $_ := set $kafka "ca_file" (printf "/etc/gpu-rebalancer/kafka/%s" $k.secret.caKey) }}{{ end -}}
{{- if $k.secret.certKey }}{{ $_ := set $kafka "cert_file" (printf "/etc/gpu-rebalancer/kafka/%s" $k.secret.certKey) }}{{ end -}}
{{- if $k.secret.keyKey }}{{ $_ := set $kafka "key_file" (printf "/etc/gpu-rebalancer/kafka/%s" $k.secret.keyKey) }}{{ end -}}
{{- $d := .Values.dcgm -}}
{{- $dcgm := dict "source" $d.source "every" $d.every "timeout" $d.timeout -}}
{{- if eq $d.source "prometheus" }}{{ $_ := set $dcgm "url" $d.url }}{{ end -}}
{{- if eq $d.source "exporters" }}{{ $_ := set $dcgm "selector" $d.selector }}{{ $_ := set $dcgm "port" $d.port }}{{ end -}}
{{- if $d.secret.tokenKey }}{{ $_ := set $dcgm "token_file" (printf "/etc/gpu-rebalancer/prometheus/%s" $d.secret.tokenKey) }}{{ end -}}
{{- if $d.secret.caKey }}{{ $_ := set $dcgm "ca_file" (printf "/etc/gpu-rebalancer/prometheus/%s" $d.secret.caKey) }}{{ end -}}
{{- $a := .Values.alerts -}}
{{- $l := .Values.leaderElection -}}
{{- $all := dict
  "cluster" .Values.cluster
  "policy" "/etc/gpu-rebalancer/policy/policy.yaml"
  "kafka" $kafka
  "partitions" .Values.partitions
  "placed" .Values.placed
  "kubernetes" (dict "namespace" .Release.Namespace)
  "dcgm" $dcgm
  "alerts" (dict "alertmanagers" $a.alertmanagers "resend" $a.resend "timeout" $a.timeout "link" $a.link)
  "lease" (dict "name" $l.resourceName "duration" $l.leaseDuration "renew" $l.renewDeadline "retry" $l.retryPeriod)
  "http" (dict "port" .Values.http.port)
  "log" .Values.log
  "data_dir" "/var/tmp/gpu-rebalancer"
-}}
{{- toYaml (mergeOverwrite $all (deepCopy .Values.settings)) -}}
{{- end }}

{{/* Volumes and mounts that settings refer to. */}}
{{- define "gpu-rebalancer.volumes" -}}
- name: settings
  configMap: {name: {{ include "gpu-rebalancer.fullname" . }}-settings}
- name: policy
  configMap: {name: {{ include "gpu-rebalancer.fullname" . }}-policy}
- name: scratch
  emptyDir: {sizeLimit: {{ .Values.scratchSize }}}
- name: tmp
  emptyDir: {sizeLimit: {{ .Values.scratchSize }}}
{{- with .Values.kafka.secret.name }}
- name: kafka
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.kafka.tokenAudience }}
- name: kafka-token
  projected:
    sources:
      - serviceAccountToken: {path: token, audience: {{ . | quote }}, expirationSeconds: 3600}
{{- end }}
{{- with .Values.dcgm.secret.name }}
- name: prometheus
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gpu-rebalancer.mounts" -}}
- {name: settings, mountPath: /etc/gpu-rebalancer/settings, readOnly: true}
- {name: policy, mountPath: /etc/gpu-rebalancer/policy, readOnly: true}
- {name: scratch, mountPath: /var/tmp/gpu-rebalancer}
- {name: tmp, mountPath: /tmp}
{{- if .Values.kafka.secret.name }}
- {name: kafka, mountPath: /etc/gpu-rebalancer/kafka, readOnly: true}
{{- end }}
{{- if .Values.kafka.tokenAudience }}
- {name: kafka-token, mountPath: /var/run/secrets/kafka, readOnly: true}
{{- end }}
{{- if .Values.dcgm.secret.name }}
- {name: prometheus, mountPath: /etc/gpu-rebalancer/prometheus, readOnly: true}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The rules of a profile at a scope, from the list that is made from the program's own. */}}
{{- define "gpu-rebalancer.rules" -}}
{{- $files := .root.Files.Get "files/rbac.yaml" -}}
{{- range $role := list "act" "collect" -}}
{{- $files = replace (printf "gpu-rebalancer-%s" $role) (printf "%s-%s" $.root.Values.leaderElection.resourceName $role) $files -}}
{{- end -}}
{{- $rules := index (fromYaml $files) .profile .scope -}}
{{- range $rules -}}
{{- if has "deployments/scale" .resources -}}
{{- $_ := set . "resourceNames" (include "gpu-rebalancer.deployments" $.root | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end }}
