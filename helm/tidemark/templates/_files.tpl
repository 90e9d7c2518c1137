{{- /* Files of a service's ConfigMap. Pods are restarted when one changes. Arguments: root, role, is. */ -}}
{{- define "tidemark.files" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $is := .is -}}
{{- $values := get $root.Values $is.values -}}
{{- $name := include "tidemark.name" $root -}}
{{ $role }}.yaml: |
  {{- include "tidemark.config" (dict "root" $root "role" $role "values" $values "grpc" $is.grpc) | nindent 2 }}
start.sh: |
  # Start the service of a pod. Pods differ in their number and their addresses.
  set -eu
  id="${POD_NAME##*-}"
  host="$POD_NAME.{{ $name }}-{{ $role }}.{{ include "tidemark.domain" $root }}"
  {{- if eq $role "broker" }}
  advertised="CLIENT://$host:9092,INTERNAL://$host:9192{{ if $root.Values.grpc.enabled }},GRPC://$host:9792{{ end }}"
  {{- with $root.Values.external }}
  {{- if eq .type "NodePort" }}
  advertised="$advertised,EXTERNAL://$HOST_IP:$(({{ .firstNodePort }} + id))"
  {{- else if eq .type "HostPort" }}
  advertised="$advertised,EXTERNAL://$HOST_IP:{{ .port }}"
  {{- else if ne .type "none" }}
  case "$id" in
    {{- range $i, $address := .addresses }}
    {{ $i }}) external="{{ $address }}" ;;
    {{- end }}
    *) echo "external.addresses has no address of broker $id" >&2; exit 78 ;;
  esac
  advertised="$advertised,EXTERNAL://$external"
  {{- end }}
  {{- end }}
  rack=""
  {{- if $root.Values.rackAwareness.enabled }}
  rack="$(cat /run/tidemark/rack)"
  {{- end }}
  # Process 1 records the end of a broker that crashes, so that it is replaced at once.
  exec python3 -P -m tidemark.runtime.supervisor broker \
    --config /etc/tidemark/broker.yaml --broker.id "$id" \
    --advertised.listeners "$advertised" --grpc.advertised "$host:{{ $is.grpc }}" \
    --node "{{ if $values.replicasMayShareHost }}$POD_NAME{{ else }}$NODE_NAME{{ end }}" --rack "$rack"
  {{- else }}
  {{- if and (eq $role "controller") $root.Values.auth.enabled }}
  # While the cluster has no user, the active controller makes this one.
  (umask 077; printf '%s:%s\n' '{{ $root.Values.auth.superUser }}' "$(cat /etc/tidemark-super-user/password)" > /tmp/users)
  {{- end }}
  # Process 1 records the end of a service that crashes, so that another one takes over at once.
  exec python3 -P -m tidemark.runtime.supervisor {{ $role | replace "-" "_" }} \
    --config /etc/tidemark/{{ $role }}.yaml --{{ $is.id }} "$id" --grpc.advertised "$host:{{ $is.grpc }}"
  {{- end }}
{{- if eq $role "broker" }}
stop.sh: |
  # Hold the end of this broker back while it would be a risk, but not for long.
  exec python3 -P /etc/tidemark/pre_stop.py {{ include "tidemark.rest" $root }} "${POD_NAME##*-}" {{ include "tidemark.gateSeconds" $values }}{{ if $root.Values.tls.enabled }} /etc/tidemark-certificate{{ end }}
pre_stop.py: |
  {{- $root.Files.Get "files/pre_stop.py" | nindent 2 }}
{{- end }}
{{- if and (eq $role "broker") $root.Values.rackAwareness.enabled }}
rack.py: |
  {{- $root.Files.Get "files/rack.py" | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tidemark.zookeeperFiles" -}}
{{- $name := printf "%s-zookeeper" (include "tidemark.name" .) -}}
{{- $values := .Values.zookeeper -}}
{{- $domain := include "tidemark.domain" . -}}
zoo.cfg: |
  tickTime=1000
  initLimit=30
  syncLimit=10
  minSessionTimeout=1000
  maxSessionTimeout=120000
  dataDir=/data/zookeeper
  clientPort=2181
  {{- if .Values.tls.enabled }}
  # Without TLS for the pod's own probes only.
  clientPortAddress=127.0.0.1
  secureClientPort=2281
  serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
  ssl.keyStore.location=/tmp/certificate.pem
  ssl.keyStore.type=PEM
  ssl.trustStore.location=/tmp/authorities.pem
  ssl.trustStore.type=PEM
  ssl.clientAuth=need
  {{- if gt (int $values.replicas) 1 }}
  sslQuorum=true
  sslQuorumReloadCertFiles=true
  ssl.quorum.keyStore.location=/tmp/certificate.pem
  ssl.quorum.keyStore.type=PEM
  ssl.quorum.trustStore.location=/tmp/authorities.pem
  ssl.quorum.trustStore.type=PEM
  # It would look up the names of callers' addresses, which not every DNS of Kubernetes has. The
  # authority issues certificates to the processes of this release only.
  ssl.quorum.hostnameVerification=false
  {{- end }}
  {{- end }}
  maxClientCnxns=0
  autopurge.purgeInterval=1
  autopurge.snapRetainCount=3
  4lw.commands.whitelist=ruok,srvr,mntr
  {{- if gt (int $values.replicas) 1 }}
  quorumListenOnAllIPs=true
  {{- range $i := until (int $values.replicas) }}
  server.{{ add $i 1 }}={{ $name }}-{{ $i }}.{{ $name }}.{{ $domain }}:2888:3888
  {{- end }}
  {{- end }}
log4j2.properties: |
  rootLogger.level = warn
  rootLogger.appenderRef.out.ref = out
  appender.out.type = Console
  appender.out.name = out
  appender.out.layout.type = PatternLayout
  appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
start.sh: |
  # Start ZooKeeper. A server's number is that of its pod plus 1.
  set -eu
  mkdir -p /data/zookeeper
  echo $((${POD_NAME##*-} + 1)) > /data/zookeeper/myid
  {{- if .Values.tls.enabled }}
  # ZooKeeper wants certificate and key in one file. It reads the files again when these change: it does not see that
  # Kubernetes swaps the directory of a Secret.
  copy() {
    umask 077
    cat /etc/zookeeper-certificate/tls.key /etc/zookeeper-certificate/tls.crt > /tmp/certificate.new
    cat /etc/zookeeper-certificate/ca.crt > /tmp/authorities.new
    for file in certificate authorities; do
      if [ "$(cat "/tmp/$file.new")" != "$(cat "/tmp/$file.pem" 2> /dev/null)" ]; then
        mv "/tmp/$file.new" "/tmp/$file.pem"
      fi
    done
  }
  copy
  (while sleep 10; do copy; done) &
  {{- end }}
  exec java -Xmx{{ $values.heap }} -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -Djava.io.tmpdir=/tmp \
    -Dzookeeper.admin.enableServer=false{{ if .Values.tls.enabled }} -Dzookeeper.client.certReload=true{{ end }} -Dlog4j2.configurationFile=/etc/zookeeper/log4j2.properties \
    -cp '/opt/zookeeper/lib/*' org.apache.zookeeper.server.quorum.QuorumPeerMain /etc/zookeeper/zoo.cfg
{{- end -}}
