-- Jobs of each action that wait for somebody who can run them, of all tenants.
select action, count(*), min(created_at) from paidonce_job
where state in ('ready', 'running', 'unknown') and state in ('ready', 'unknown') group by action order by action
