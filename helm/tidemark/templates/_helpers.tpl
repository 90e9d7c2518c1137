{{- define "tidemark.name" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "tidemark.domain" -}}
{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- /* Labels of an object. Arguments: root, role. */ -}}
{{- define "tidemark.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{ include "tidemark.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tidemark.selector" -}}
app.kubernetes.io/name: tidemark
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- /* Reference of an image. Arguments: root, image. */ -}}
{{- define "tidemark.image" -}}
{{- $name := printf "%s/%s" .root.Values.image.registry .image.repository -}}
{{- if .image.digest -}}
{{ $name }}@{{ .image.digest }}
{{- else -}}
{{ $name }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end -}}

{{- define "tidemark.zookeeper" -}}
{{- if .Values.zookeeper.external -}}
{{ .Values.zookeeper.external }}
{{- else -}}
{{- $name := include "tidemark.name" . -}}
{{- $servers := list -}}
{{- range $i := until (int .Values.zookeeper.replicas) -}}
{{- $servers = append $servers (printf "%s-zookeeper-%d.%s-zookeeper.%s:%s" $name $i $name (include "tidemark.domain" $) (ternary "2281" "2181" $.Values.tls.enabled)) -}}
{{- end -}}
{{ join "," $servers }}/tidemark
{{- end -}}
{{- end -}}

{{- /* REST of the controllers. */ -}}
{{- define "tidemark.rest" -}}
{{ ternary "https" "http" .Values.tls.enabled }}://{{ include "tidemark.name" . }}-rest.{{ .Release.Namespace }}.svc:{{ ternary "8443" "8080" .Values.tls.enabled }}
{{- end -}}

{{- /* Services of Tidemark: component, values, the option that numbers its pods, ports by name. */ -}}
{{- define "tidemark.roles" -}}
broker: {values: broker, id: broker.id, grpc: 9292, ports: {client: 9092, internal: 9192, grpc: 9292, {{ if .Values.grpc.enabled }}grpc-client: 9792, {{ end }}ops: 9392}}
controller: {values: controller, id: controller.id, grpc: 19090, ports: {grpc: 19090, rest: {{ ternary "8443" "8080" .Values.tls.enabled }}, ops: 9392}}
txn-coordinator: {values: txnCoordinator, id: coordinator.id, grpc: 19190, ports: {grpc: 19190, ops: 9392}}
share-coordinator: {values: shareCoordinator, id: coordinator.id, grpc: 19290, ports: {grpc: 19290, ops: 9392}}
{{- end -}}

{{- /* Time for which the end of a broker is held back at most. Argument: its values. */ -}}
{{- define "tidemark.gateSeconds" -}}
{{ max 0 (div (sub (int .terminationGracePeriodSeconds) 30) 4) }}
{{- end -}}

{{- /* Options of a service, those of the user last. Arguments: root, role, values, grpc. */ -}}
{{- define "tidemark.config" -}}
{{- $v := .root.Values -}}
{{- $grace := int .values.terminationGracePeriodSeconds -}}
{{- if eq .role "broker" -}}
{{- $grace = sub $grace (int (include "tidemark.gateSeconds" .values)) -}}
{{- end -}}
{{- $config := dict
  "zookeeper.connect" (include "tidemark.zookeeper" .root)
  "log.format" "json"
  "ops.listen" "0.0.0.0:9392"
  "zookeeper.connect.timeout.ms" 86400000
  "grpc.listen" (printf "0.0.0.0:%d" (int .grpc))
  "shutdown.deadline.ms" (mul 1000 (sub $grace 10)) -}}
{{- $factor := int $v.replication.factor -}}
{{- $minimum := int $v.replication.minInSyncReplicas -}}
{{- if eq .role "controller" -}}
{{- $_ := set $config "rest.listen" (ternary "0.0.0.0:8443" "0.0.0.0:8080" $v.tls.enabled) -}}
{{- if not $v.auth.enabled -}}
{{- /* The Services of the chart are inside the cluster: who reaches them may do everything. */ -}}
{{- $_ := set $config "rest.private.network" true -}}
{{- end -}}
{{- $rest := printf "%s-rest" (include "tidemark.name" .root) -}}
{{- $inside := printf "%s.%s" $rest .root.Release.Namespace -}}
{{- $hosts := list $rest $inside (printf "%s.svc" $inside) (printf "%s.svc.%s" $inside $v.clusterDomain) -}}
{{- $_ := set $config "rest.allowed.hosts" (join "," $hosts) -}}
{{- $_ := set $config "default.replication.factor" $factor -}}
{{- if $v.replaceLostNodes.enabled -}}
{{- $_ := set $config "kubernetes.release" .root.Release.Name -}}
{{- $_ := set $config "kubernetes.namespace" .root.Release.Namespace -}}
{{- $_ := set $config "kubernetes.node.lost.ms" (mul 1000 $v.replaceLostNodes.afterSeconds) -}}
{{- end -}}
{{- else if eq .role "broker" -}}
{{- $directories := list -}}
{{- range $i := until (int .values.storage.disks) -}}
{{- $directories = append $directories (printf "/data/disk%d/log" $i) -}}
{{- end -}}
{{- $listeners := list "CLIENT://0.0.0.0:9092" "INTERNAL://0.0.0.0:9192" -}}
{{- if $v.grpc.enabled -}}
{{- $listeners = append $listeners "GRPC://0.0.0.0:9792" -}}
{{- end -}}
{{- if ne $v.external.type "none" -}}
{{- $listeners = append $listeners (printf "EXTERNAL://0.0.0.0:%d" (int $v.external.port)) -}}
{{- end -}}
{{- $config = merge $config (dict
  "log.dirs" (join "," $directories)
  "runtime.dir" "/run/tidemark"
  "listeners" (join "," $listeners)
  "controlled.shutdown.deadline.ms" (mul 400 (sub $grace 10))
  "default.replication.factor" $factor
  "min.insync.replicas" $minimum
  "offsets.topic.replication.factor" $factor
  "audit.topic.replication.factor" $factor
  "transaction.state.log.replication.factor" $factor
  "transaction.state.log.min.isr" $minimum
  "share.coordinator.state.topic.replication.factor" $factor
  "share.coordinator.state.topic.min.isr" $minimum) -}}
{{- end -}}
{{- $config = merge $config (include "tidemark.security" . | fromYaml) -}}
{{- $config = mergeOverwrite $config .values.config -}}
{{- /* Numbers of YAML are floats to helm, which writes large ones as 8.64e+07. */ -}}
{{- range $key, $value := $config -}}
{{- if and (kindIs "float64" $value) (eq $value (floor $value)) -}}
{{- $_ := set $config $key (int64 $value) -}}
{{- end -}}
{{- end -}}
{{ toYaml $config }}
{{- end -}}
