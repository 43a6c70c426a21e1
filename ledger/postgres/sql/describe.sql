-- What the server does with a commit, as this connection sees it. synchronous_standby_names
-- is there for everybody; what pg_stat_replication says of each standby is not.
select current_setting('server_version') as version,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('fsync') = 'on' as fsync,
       pg_is_in_recovery() as replica,
       (select count(*) from pg_stat_replication)::int as standbys,
       current_setting('synchronous_standby_names') <> '' as waits,
       coalesce((select pg_has_role(c.relowner, 'usage') from pg_class c where c.oid = to_regclass('paidonce.job')), false) as owner
