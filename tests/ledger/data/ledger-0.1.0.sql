BEGIN TRANSACTION;
CREATE TABLE alert_attempts (
	alert BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	PRIMARY KEY (alert, number), 
	FOREIGN KEY(alert) REFERENCES alerts (id)
)
 WITHOUT ROWID

;
INSERT INTO "alert_attempts" VALUES(1,1,1793790000000000);
INSERT INTO "alert_attempts" VALUES(1,2,1793793600000000);
INSERT INTO "alert_attempts" VALUES(2,1,1793790000000000);
INSERT INTO "alert_attempts" VALUES(2,2,1793793600000000);
INSERT INTO "alert_attempts" VALUES(3,1,1793869200000000);
CREATE TABLE alert_results (
	alert BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	delivered INTEGER NOT NULL, 
	detail TEXT NOT NULL, 
	PRIMARY KEY (alert, number), 
	FOREIGN KEY(alert) REFERENCES alerts (id)
)
 WITHOUT ROWID

;
INSERT INTO "alert_results" VALUES(1,1,1793790000000000,0,'mail: the server refused');
INSERT INTO "alert_results" VALUES(1,2,1793793600000000,1,'mail');
INSERT INTO "alert_results" VALUES(2,1,1793790000000000,0,'mail: the server refused');
INSERT INTO "alert_results" VALUES(2,2,1793793600000000,1,'mail');
CREATE TABLE alerts (
	id INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	budget BIGINT NOT NULL, 
	period_start_us BIGINT NOT NULL, 
	threshold INTEGER NOT NULL, 
	nano_usd BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT alerts_once UNIQUE (budget, period_start_us, threshold), 
	FOREIGN KEY(budget) REFERENCES budgets (id)
);
INSERT INTO "alerts" VALUES(1,1793790000000000,2,1793487600000000,50,161000000000);
INSERT INTO "alerts" VALUES(2,1793790000000000,2,1793487600000000,80,161000000000);
INSERT INTO "alerts" VALUES(3,1793869200000000,2,1793487600000000,100,201000000000);
CREATE TABLE billed (
	id INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	provider TEXT NOT NULL, 
	account TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	start_us BIGINT NOT NULL, 
	end_us BIGINT NOT NULL, 
	nano_usd BIGINT NOT NULL, 
	source TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "billed" VALUES(1,1793869200000000,'aws','123456789012','awsedge',1793491200000000,1793577600000000,900000000,'AWS Cost Explorer');
INSERT INTO "billed" VALUES(2,1793869200000000,'aws','123456789012','awsidle',1793750400000000,1793836800000000,100000000000,'AWS Cost Explorer');
INSERT INTO "billed" VALUES(3,1793869200000000,'aws','123456789012','',1793750400000000,1793836800000000,41500000000,'AWS Cost Explorer');
INSERT INTO "billed" VALUES(4,1795078800000000,'aws','123456789012','awsedge',1793491200000000,1793577600000000,1000000000,'AWS Cost Explorer');
INSERT INTO "billed" VALUES(5,1795078800000000,'aws','123456789012','awsidle',1793750400000000,1793836800000000,161000000000,'AWS Cost Explorer');
INSERT INTO "billed" VALUES(6,1795078800000000,'aws','123456789012','',1793750400000000,1793836800000000,41500000000,'AWS Cost Explorer');
CREATE TABLE budgets (
	id INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	name TEXT NOT NULL, 
	data TEXT, 
	writer TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "budgets" VALUES(1,1793350800000000,'team-nlp','{"name":"team-nlp","amount_usd":"150","every":"monthly","time_zone":"Europe/Berlin","thresholds":[50,80,100],"provider":"","owner":"","tags":{"team":"nlp"},"enforce":false}','0.1.0');
INSERT INTO "budgets" VALUES(2,1793437200000000,'team-nlp','{"name":"team-nlp","amount_usd":"200","every":"monthly","time_zone":"Europe/Berlin","thresholds":[50,80,100],"provider":"","owner":"","tags":{"team":"nlp"},"enforce":false}','0.1.0');
INSERT INTO "budgets" VALUES(3,1793437200000000,'everything','{"name":"everything","amount_usd":"5000.50","every":"total","time_zone":"UTC","thresholds":[25,50,100],"provider":"aws","owner":"ann","tags":{},"enforce":true}','0.1.0');
INSERT INTO "budgets" VALUES(4,1793437200000000,'gone','{"name":"gone","amount_usd":"5","every":"daily","time_zone":"UTC","thresholds":[50,80,100],"provider":"","owner":"","tags":{},"enforce":false}','0.1.0');
INSERT INTO "budgets" VALUES(5,1793523600000000,'gone',NULL,'0.1.0');
CREATE TABLE closings (
	run INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	reason TEXT NOT NULL, 
	ended_by TEXT NOT NULL, 
	provider TEXT NOT NULL, 
	account TEXT NOT NULL, 
	region TEXT NOT NULL, 
	zone TEXT NOT NULL, 
	instance_type TEXT NOT NULL, 
	instance_id TEXT NOT NULL, 
	purchase_option TEXT NOT NULL, 
	accelerator TEXT NOT NULL, 
	accelerator_count DOUBLE, 
	started_us BIGINT, 
	ended_us BIGINT, 
	metered_seconds DOUBLE, 
	metered_nano_usd BIGINT, 
	PRIMARY KEY (run), 
	FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "closings" VALUES(1,1793351412031250,'succeeded','client','fake','000000000000','us-east-1','us-east-1a','f1.gpu','i-00000002','on_demand','',NULL,1793350800000000,1793351412000000,612.0,170278000);
INSERT INTO "closings" VALUES(2,1793437807031250,'job_failed','client','fake','000000000000','us-east-1','us-east-1a','f1.gpu','i-00000002','on_demand','',NULL,1793437200000000,1793437807000000,607.0,168889000);
INSERT INTO "closings" VALUES(3,1793480409031250,'cancelled','client','fake','000000000000','us-east-1','us-east-1a','f1.gpu','i-00000002','on_demand','',NULL,1793480400000000,1793480409000000,9.0,16667000);
INSERT INTO "closings" VALUES(4,1793524207031250,'succeeded','client','fake','000000000000','us-east-1','us-east-1c','f1.gpu','i-00000002','on_demand','',NULL,1793523600000000,1793524207000000,607.0,168889000);
INSERT INTO "closings" VALUES(6,1793494800000000,'succeeded','client','aws','123456789012','us-east-1','us-east-1a','g5.xlarge','i-awsedge','on_demand','A10G',1.0,1793487600000000,1793494800000000,7200.0,2000000001);
INSERT INTO "closings" VALUES(7,1793700000000000,'succeeded','client','aws','123456789012','us-east-1','us-east-1a','g5.xlarge','i-awsspot','spot','',NULL,1793696400000000,1793700000000000,3600.0,750000000);
INSERT INTO "closings" VALUES(8,1793786400000000,'idle','client','aws','123456789012','us-east-1','us-east-1a','g5.xlarge','i-awsidle','on_demand','A10G',1.0,1793782800000000,1793786400000000,3600.0,160250000000);
CREATE TABLE estimates (
	id INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	workload TEXT NOT NULL, 
	name TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	data TEXT NOT NULL, 
	writer TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "estimates" VALUES(1,1793350800000000,'w-train','train.py','ann@laptop','{"choice":"gpu","cost":"0.19","break_even":"inf"}','0.1.0');
CREATE TABLE events (
	id INTEGER NOT NULL, 
	run_id TEXT NOT NULL, 
	sequence INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	data TEXT NOT NULL, 
	writer TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT events_run_sequence UNIQUE (run_id, sequence)
);
INSERT INTO "events" VALUES(1,'run0succeeded',0,1793350800000000,'intended','{"name":"train","owner":"ann@laptop","client":"laptop","spec":{"name":"train","argv":["train.py"],"workdir":"/home/ann/project","setup":"pip install -r requirements.txt","env_names":[],"env_file":null,"outputs":[],"processes":0,"python":"","max_cost_usd":null,"max_duration_seconds":null,"idle_seconds":null,"grace_seconds":30.0,"auto_shutdown":true,"bucket":"","tags":{"team":"nlp"}},"identity":{"provider":"fake","account":"000000000000","principal":"me","source":""},"options":[{"offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lease":{"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00","limited_by":"--max-cost $2.00"},"disk_gib":50,"extras_usd_per_hour":"0"},{"offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-west-2","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lease":{"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00","limited_by":"--max-cost $2.00"},"disk_gib":50,"extras_usd_per_hour":"0"}],"estimate":{"seconds":700.0,"seconds_low":560.0,"seconds_high":840.0,"cost_usd":0.1944,"cost_usd_low":0.15552,"cost_usd_high":0.23328,"job_seconds":640.0},"workload":{"key":"w-train","steps":1000.0}}','0.1.0');
INSERT INTO "events" VALUES(2,'run0succeeded',1,1793350800000000,'attempted','{"attempt":1,"token":"run0succeeded-1","option":0,"zone":"us-east-1a","lease_until":"2026-10-30T10:59:00+00:00","allow_from":"192.0.2.1/32","account":"000000000000","offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00"}','0.1.0');
INSERT INTO "events" VALUES(3,'run0succeeded',2,1793350800000000,'created','{"provider":"fake","region":"us-east-1","instance_id":"i-00000002","zone":"us-east-1a","instance_type":"f1.gpu","launched_at":"2026-10-30T09:00:00+00:00","layers":[{"name":"create call","armed":false,"detail":"this cloud''s create call has no termination time","deadline":null},{"name":"watchdog","armed":true,"detail":"powers the machine off; power-off terminates","deadline":"2026-10-30T10:59:00+00:00"}]}','0.1.0');
INSERT INTO "events" VALUES(4,'run0succeeded',3,1793350805000000,'reached','{"host":"198.51.100.3","zone":"us-east-1a"}','0.1.0');
INSERT INTO "events" VALUES(5,'run0succeeded',4,1793350805000000,'synced','{"files":1,"bytes":5}','0.1.0');
INSERT INTO "events" VALUES(6,'run0succeeded',5,1793350805000000,'started','{}','0.1.0');
INSERT INTO "events" VALUES(7,'run0succeeded',6,1793351410000000,'finished','{"phase":"finished","reason":"succeeded","exit_code":0,"detail":"","started_epoch":1793350805.0,"job_started_epoch":null,"finished_epoch":1793351410.0,"stdout_bytes":8,"stderr_bytes":5,"uploaded":false}','0.1.0');
INSERT INTO "events" VALUES(8,'run0succeeded',7,1793351410000000,'collected','{"files":1,"bytes":7,"replaced":0,"stuck":0,"missing":[]}','0.1.0');
INSERT INTO "events" VALUES(9,'run0succeeded',8,1793351410000000,'ending','{"reason":"succeeded","by":"client"}','0.1.0');
INSERT INTO "events" VALUES(10,'run0succeeded',9,1793351412031250,'confirmed','{"state":"terminated","provider_reason":"user initiated","by":"client","reason":"succeeded","ended_at":"2026-10-30T09:10:12.031250+00:00","ended_before":false}','0.1.0');
INSERT INTO "events" VALUES(11,'run0succeeded',10,1793351412031250,'closed','{"reason":"succeeded","ended_by":"client","metered_seconds":612.0,"metered_cost_usd":"0.170278","receipt":{"run_id":"run0succeeded","instance":{"provider":"fake","region":"us-east-1","instance_id":"i-00000002"},"instance_type":"f1.gpu","layers":[{"name":"create call","armed":false,"detail":"this cloud''s create call has no termination time","deadline":null},{"name":"watchdog","armed":true,"detail":"powers the machine off; power-off terminates","deadline":"2026-10-30T10:59:00+00:00"},{"name":"agent","armed":true,"detail":"on the machine: job over and nobody there, idle, out of time, disk full, preempted","deadline":"2026-10-30T10:59:00+00:00"},{"name":"client","armed":true,"detail":"terminates when the job is over, and waits for proof","deadline":null},{"name":"reap","armed":true,"detail":"costgpu reap ends it by its tag, from any computer","deadline":"2026-10-30T10:59:00+00:00"}],"reason":"succeeded","ended_by":"client","requested_at":"2026-10-30T09:10:10+00:00","confirmed_state":"terminated","confirmed_at":"2026-10-30T09:10:12.031250+00:00","provider_reason":"user initiated","left_behind":[],"metered_seconds":612.0,"metered_cost_usd":"0.170278","metered_at_most":false}}','0.1.0');
INSERT INTO "events" VALUES(12,'run1failed',0,1793437200000000,'intended','{"name":"train","owner":"bob@desk","client":"laptop","spec":{"name":"train","argv":["train.py"],"workdir":"/home/ann/project","setup":"","env_names":[],"env_file":null,"outputs":[],"processes":0,"python":"","max_cost_usd":null,"max_duration_seconds":null,"idle_seconds":null,"grace_seconds":30.0,"auto_shutdown":true,"bucket":"","tags":{"team":"vision"}},"identity":{"provider":"fake","account":"000000000000","principal":"me","source":""},"options":[{"offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lease":{"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00","limited_by":"--max-cost $2.00"},"disk_gib":50,"extras_usd_per_hour":"0"},{"offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-west-2","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lease":{"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00","limited_by":"--max-cost $2.00"},"disk_gib":50,"extras_usd_per_hour":"0"}],"estimate":null,"workload":{"key":"","steps":null}}','0.1.0');
INSERT INTO "events" VALUES(13,'run1failed',1,1793437200000000,'attempted','{"attempt":1,"token":"run1failed-1","option":0,"zone":"us-east-1a","lease_until":"2026-10-31T10:59:00+00:00","allow_from":"192.0.2.1/32","account":"000000000000","offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00"}','0.1.0');
INSERT INTO "events" VALUES(14,'run1failed',2,1793437200000000,'created','{"provider":"fake","region":"us-east-1","instance_id":"i-00000002","zone":"us-east-1a","instance_type":"f1.gpu","launched_at":"2026-10-31T09:00:00+00:00","layers":[{"name":"create call","armed":false,"detail":"this cloud''s create call has no termination time","deadline":null},{"name":"watchdog","armed":true,"detail":"powers the machine off; power-off terminates","deadline":"2026-10-31T10:59:00+00:00"}]}','0.1.0');
INSERT INTO "events" VALUES(15,'run1failed',3,1793437205000000,'reached','{"host":"198.51.100.3","zone":"us-east-1a"}','0.1.0');
INSERT INTO "events" VALUES(16,'run1failed',4,1793437205000000,'synced','{"files":1,"bytes":5}','0.1.0');
INSERT INTO "events" VALUES(17,'run1failed',5,1793437205000000,'started','{}','0.1.0');
INSERT INTO "events" VALUES(18,'run1failed',6,1793437805000000,'finished','{"phase":"finished","reason":"job_failed","exit_code":3,"detail":"","started_epoch":1793437205.0,"job_started_epoch":null,"finished_epoch":1793437805.0,"stdout_bytes":8,"stderr_bytes":5,"uploaded":false}','0.1.0');
INSERT INTO "events" VALUES(19,'run1failed',7,1793437805000000,'collected','{"files":1,"bytes":7,"replaced":0,"stuck":0,"missing":[]}','0.1.0');
INSERT INTO "events" VALUES(20,'run1failed',8,1793437805000000,'ending','{"reason":"job_failed","by":"client"}','0.1.0');
INSERT INTO "events" VALUES(21,'run1failed',9,1793437807031250,'confirmed','{"state":"terminated","provider_reason":"user initiated","by":"client","reason":"job_failed","ended_at":"2026-10-31T09:10:07.031250+00:00","ended_before":false}','0.1.0');
INSERT INTO "events" VALUES(22,'run1failed',10,1793437807031250,'closed','{"reason":"job_failed","ended_by":"client","metered_seconds":607.0,"metered_cost_usd":"0.168889","receipt":{"run_id":"run1failed","instance":{"provider":"fake","region":"us-east-1","instance_id":"i-00000002"},"instance_type":"f1.gpu","layers":[{"name":"create call","armed":false,"detail":"this cloud''s create call has no termination time","deadline":null},{"name":"watchdog","armed":true,"detail":"powers the machine off; power-off terminates","deadline":"2026-10-31T10:59:00+00:00"},{"name":"agent","armed":true,"detail":"on the machine: job over and nobody there, idle, out of time, disk full, preempted","deadline":"2026-10-31T10:59:00+00:00"},{"name":"client","armed":true,"detail":"terminates when the job is over, and waits for proof","deadline":null},{"name":"reap","armed":true,"detail":"costgpu reap ends it by its tag, from any computer","deadline":"2026-10-31T10:59:00+00:00"}],"reason":"job_failed","ended_by":"client","requested_at":"2026-10-31T09:10:05+00:00","confirmed_state":"terminated","confirmed_at":"2026-10-31T09:10:07.031250+00:00","provider_reason":"user initiated","left_behind":[],"metered_seconds":607.0,"metered_cost_usd":"0.168889","metered_at_most":false}}','0.1.0');
INSERT INTO "events" VALUES(23,'run2cancelled',0,1793480400000000,'intended','{"name":"evaluate","owner":"ann@laptop","client":"laptop","spec":{"name":"evaluate","argv":["train.py"],"workdir":"/home/ann/project","setup":"","env_names":[],"env_file":null,"outputs":[],"processes":0,"python":"","max_cost_usd":null,"max_duration_seconds":null,"idle_seconds":null,"grace_seconds":30.0,"auto_shutdown":true,"bucket":"","tags":{}},"identity":{"provider":"fake","account":"000000000000","principal":"me","source":""},"options":[{"offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lease":{"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00","limited_by":"--max-cost $2.00"},"disk_gib":50,"extras_usd_per_hour":"0"},{"offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-west-2","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lease":{"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00","limited_by":"--max-cost $2.00"},"disk_gib":50,"extras_usd_per_hour":"0"}],"estimate":null,"workload":{"key":"","steps":null}}','0.1.0');
INSERT INTO "events" VALUES(24,'run2cancelled',1,1793480400000000,'attempted','{"attempt":1,"token":"run2cancelled-1","option":0,"zone":"us-east-1a","lease_until":"2026-10-31T22:59:00+00:00","allow_from":"192.0.2.1/32","account":"000000000000","offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00"}','0.1.0');
INSERT INTO "events" VALUES(25,'run2cancelled',2,1793480400000000,'created','{"provider":"fake","region":"us-east-1","instance_id":"i-00000002","zone":"us-east-1a","instance_type":"f1.gpu","launched_at":"2026-10-31T21:00:00+00:00","layers":[{"name":"create call","armed":false,"detail":"this cloud''s create call has no termination time","deadline":null},{"name":"watchdog","armed":true,"detail":"powers the machine off; power-off terminates","deadline":"2026-10-31T22:59:00+00:00"}]}','0.1.0');
INSERT INTO "events" VALUES(26,'run2cancelled',3,1793480405000000,'reached','{"host":"198.51.100.3","zone":"us-east-1a"}','0.1.0');
INSERT INTO "events" VALUES(27,'run2cancelled',4,1793480405000000,'synced','{"files":1,"bytes":5}','0.1.0');
INSERT INTO "events" VALUES(28,'run2cancelled',5,1793480405000000,'started','{}','0.1.0');
INSERT INTO "events" VALUES(29,'run2cancelled',6,1793480407000000,'finished','{"phase":"finished","reason":"cancelled","exit_code":143,"detail":"","started_epoch":1793480405.0,"job_started_epoch":null,"finished_epoch":1793480407.0,"stdout_bytes":4,"stderr_bytes":5,"uploaded":false}','0.1.0');
INSERT INTO "events" VALUES(30,'run2cancelled',7,1793480407000000,'collected','{"files":1,"bytes":4,"replaced":2,"stuck":0,"missing":[]}','0.1.0');
INSERT INTO "events" VALUES(31,'run2cancelled',8,1793480407000000,'ending','{"reason":"cancelled","by":"client"}','0.1.0');
INSERT INTO "events" VALUES(32,'run2cancelled',9,1793480409031250,'confirmed','{"state":"terminated","provider_reason":"user initiated","by":"client","reason":"cancelled","ended_at":"2026-10-31T21:00:09.031250+00:00","ended_before":false}','0.1.0');
INSERT INTO "events" VALUES(33,'run2cancelled',10,1793480409031250,'closed','{"reason":"cancelled","ended_by":"client","metered_seconds":9.0,"metered_cost_usd":"0.016667","receipt":{"run_id":"run2cancelled","instance":{"provider":"fake","region":"us-east-1","instance_id":"i-00000002"},"instance_type":"f1.gpu","layers":[{"name":"create call","armed":false,"detail":"this cloud''s create call has no termination time","deadline":null},{"name":"watchdog","armed":true,"detail":"powers the machine off; power-off terminates","deadline":"2026-10-31T22:59:00+00:00"},{"name":"agent","armed":true,"detail":"on the machine: job over and nobody there, idle, out of time, disk full, preempted","deadline":"2026-10-31T22:59:00+00:00"},{"name":"client","armed":true,"detail":"terminates when the job is over, and waits for proof","deadline":null},{"name":"reap","armed":true,"detail":"costgpu reap ends it by its tag, from any computer","deadline":"2026-10-31T22:59:00+00:00"}],"reason":"cancelled","ended_by":"client","requested_at":"2026-10-31T21:00:07+00:00","confirmed_state":"terminated","confirmed_at":"2026-10-31T21:00:09.031250+00:00","provider_reason":"user initiated","left_behind":[],"metered_seconds":9.0,"metered_cost_usd":"0.016667","metered_at_most":false}}','0.1.0');
INSERT INTO "events" VALUES(34,'run3moved',0,1793523600000000,'intended','{"name":"train","owner":"ann@laptop","client":"laptop","spec":{"name":"train","argv":["train.py"],"workdir":"/home/ann/project","setup":"","env_names":[],"env_file":null,"outputs":[],"processes":0,"python":"","max_cost_usd":null,"max_duration_seconds":null,"idle_seconds":null,"grace_seconds":30.0,"auto_shutdown":true,"bucket":"","tags":{}},"identity":{"provider":"fake","account":"000000000000","principal":"me","source":""},"options":[{"offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lease":{"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00","limited_by":"--max-cost $2.00"},"disk_gib":50,"extras_usd_per_hour":"0"},{"offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-west-2","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lease":{"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00","limited_by":"--max-cost $2.00"},"disk_gib":50,"extras_usd_per_hour":"0"}],"estimate":null,"workload":{"key":"","steps":null}}','0.1.0');
INSERT INTO "events" VALUES(35,'run3moved',1,1793523600000000,'attempted','{"attempt":1,"token":"run3moved-1","option":0,"zone":"us-east-1a","lease_until":"2026-11-01T10:59:00+00:00","allow_from":"192.0.2.1/32","account":"000000000000","offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00"}','0.1.0');
INSERT INTO "events" VALUES(36,'run3moved',2,1793523600000000,'refused','{"error":"NoCapacity","message":"No f1.gpu is free there now."}','0.1.0');
INSERT INTO "events" VALUES(37,'run3moved',3,1793523600000000,'attempted','{"attempt":2,"token":"run3moved-2","option":0,"zone":"us-east-1b","lease_until":"2026-11-01T10:59:00+00:00","allow_from":"192.0.2.1/32","account":"000000000000","offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00"}','0.1.0');
INSERT INTO "events" VALUES(38,'run3moved',4,1793523600000000,'refused','{"error":"NoCapacity","message":"No f1.gpu is free there now."}','0.1.0');
INSERT INTO "events" VALUES(39,'run3moved',5,1793523600000000,'attempted','{"attempt":3,"token":"run3moved-3","option":0,"zone":"us-east-1c","lease_until":"2026-11-01T10:59:00+00:00","allow_from":"192.0.2.1/32","account":"000000000000","offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00"}','0.1.0');
INSERT INTO "events" VALUES(40,'run3moved',6,1793523600000000,'created','{"provider":"fake","region":"us-east-1","instance_id":"i-00000002","zone":"us-east-1c","instance_type":"f1.gpu","launched_at":"2026-11-01T09:00:00+00:00","layers":[{"name":"create call","armed":false,"detail":"this cloud''s create call has no termination time","deadline":null},{"name":"watchdog","armed":true,"detail":"powers the machine off; power-off terminates","deadline":"2026-11-01T10:59:00+00:00"}]}','0.1.0');
INSERT INTO "events" VALUES(41,'run3moved',7,1793523605000000,'reached','{"host":"198.51.100.3","zone":"us-east-1c"}','0.1.0');
INSERT INTO "events" VALUES(42,'run3moved',8,1793523605000000,'synced','{"files":1,"bytes":5}','0.1.0');
INSERT INTO "events" VALUES(43,'run3moved',9,1793523605000000,'started','{}','0.1.0');
INSERT INTO "events" VALUES(44,'run3moved',10,1793524205000000,'finished','{"phase":"finished","reason":"succeeded","exit_code":0,"detail":"","started_epoch":1793523605.0,"job_started_epoch":null,"finished_epoch":1793524205.0,"stdout_bytes":8,"stderr_bytes":5,"uploaded":false}','0.1.0');
INSERT INTO "events" VALUES(45,'run3moved',11,1793524205000000,'collected','{"files":1,"bytes":7,"replaced":2,"stuck":0,"missing":[]}','0.1.0');
INSERT INTO "events" VALUES(46,'run3moved',12,1793524205000000,'ending','{"reason":"succeeded","by":"client"}','0.1.0');
INSERT INTO "events" VALUES(47,'run3moved',13,1793524207031250,'confirmed','{"state":"terminated","provider_reason":"user initiated","by":"client","reason":"succeeded","ended_at":"2026-11-01T09:10:07.031250+00:00","ended_before":false}','0.1.0');
INSERT INTO "events" VALUES(48,'run3moved',14,1793524207031250,'closed','{"reason":"succeeded","ended_by":"client","metered_seconds":607.0,"metered_cost_usd":"0.168889","receipt":{"run_id":"run3moved","instance":{"provider":"fake","region":"us-east-1","instance_id":"i-00000002"},"instance_type":"f1.gpu","layers":[{"name":"create call","armed":false,"detail":"this cloud''s create call has no termination time","deadline":null},{"name":"watchdog","armed":true,"detail":"powers the machine off; power-off terminates","deadline":"2026-11-01T10:59:00+00:00"},{"name":"agent","armed":true,"detail":"on the machine: job over and nobody there, idle, out of time, disk full, preempted","deadline":"2026-11-01T10:59:00+00:00"},{"name":"client","armed":true,"detail":"terminates when the job is over, and waits for proof","deadline":null},{"name":"reap","armed":true,"detail":"costgpu reap ends it by its tag, from any computer","deadline":"2026-11-01T10:59:00+00:00"}],"reason":"succeeded","ended_by":"client","requested_at":"2026-11-01T09:10:05+00:00","confirmed_state":"terminated","confirmed_at":"2026-11-01T09:10:07.031250+00:00","provider_reason":"user initiated","left_behind":[],"metered_seconds":607.0,"metered_cost_usd":"0.168889","metered_at_most":false}}','0.1.0');
INSERT INTO "events" VALUES(49,'run4open',0,1795251600000000,'intended','{"name":"finetune","owner":"ann@laptop","client":"laptop","spec":{"name":"finetune","argv":["train.py"],"workdir":"/home/ann/project","setup":"","env_names":[],"env_file":null,"outputs":[],"processes":0,"python":"","max_cost_usd":null,"max_duration_seconds":null,"idle_seconds":null,"grace_seconds":30.0,"auto_shutdown":true,"bucket":"","tags":{"team":"nlp","paper":"p1"}},"identity":{"provider":"fake","account":"000000000000","principal":"me","source":""},"options":[{"offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lease":{"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00","limited_by":"--max-cost $2.00"},"disk_gib":50,"extras_usd_per_hour":"0"},{"offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-west-2","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lease":{"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00","limited_by":"--max-cost $2.00"},"disk_gib":50,"extras_usd_per_hour":"0"}],"estimate":null,"workload":{"key":"","steps":null}}','0.1.0');
INSERT INTO "events" VALUES(50,'run4open',1,1795251600000000,'attempted','{"attempt":1,"token":"run4open-1","option":0,"zone":"us-east-1a","lease_until":"2026-11-21T10:59:00+00:00","allow_from":"192.0.2.1/32","account":"000000000000","offer":{"provider":"fake","instance_type":"f1.gpu","family":"f1","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.00","vcpus":4,"memory_gib":16.0,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-01-01"},"lifetime_seconds":7140.0,"worst_cost_usd":"2.000000","usd_per_hour":"1.00"}','0.1.0');
INSERT INTO "events" VALUES(51,'run4open',2,1795251600000000,'created','{"provider":"fake","region":"us-east-1","instance_id":"i-00000002","zone":"us-east-1a","instance_type":"f1.gpu","launched_at":"2026-11-21T09:00:00+00:00","layers":[{"name":"create call","armed":false,"detail":"this cloud''s create call has no termination time","deadline":null},{"name":"watchdog","armed":true,"detail":"powers the machine off; power-off terminates","deadline":"2026-11-21T10:59:00+00:00"}]}','0.1.0');
INSERT INTO "events" VALUES(52,'run4open',3,1795251605000000,'reached','{"host":"198.51.100.3","zone":"us-east-1a"}','0.1.0');
INSERT INTO "events" VALUES(53,'run4open',4,1795251605000000,'synced','{"files":1,"bytes":5}','0.1.0');
INSERT INTO "events" VALUES(54,'run4open',5,1795251605000000,'started','{}','0.1.0');
INSERT INTO "events" VALUES(55,'run4open',6,1795251605000000,'detached','{"because":"on purpose"}','0.1.0');
INSERT INTO "events" VALUES(56,'awsedge',0,1793487600000000,'intended','{"name":"train","owner":"ann@laptop","client":"laptop","spec":{"name":"train","argv":["train.py"],"workdir":"/w","setup":"","env_names":[],"env_file":null,"outputs":[],"processes":0,"python":"","max_cost_usd":null,"max_duration_seconds":null,"idle_seconds":null,"grace_seconds":30.0,"auto_shutdown":true,"bucket":"","tags":{"team":"nlp"}},"identity":{"provider":"aws","account":"123456789012","principal":"me","source":""},"options":[{"offer":{"provider":"aws","instance_type":"g5.xlarge","family":"g5","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.006","vcpus":4,"memory_gib":16,"architecture":"x86_64","accelerator":{"name":"A10G","count":1,"memory_gib":24},"price_source":"test","price_as_of":"2026-11-01"},"lease":{"lifetime_seconds":3522586.2,"worst_cost_usd":"999.999997","usd_per_hour":"1.021959","limited_by":"--max-cost $1,000"},"disk_gib":50,"extras_usd_per_hour":"0"}],"estimate":{"seconds":7000.0,"seconds_low":6500.0,"seconds_high":7500.0,"cost_usd":1.9,"cost_usd_low":1.7,"cost_usd_high":2.1,"job_seconds":6900.0},"workload":{"key":"w-aws","steps":10.0}}','0.1.0');
INSERT INTO "events" VALUES(57,'awsedge',1,1793487600000000,'attempted','{"attempt":1,"token":"awsedge-1","option":0,"zone":"us-east-1a","offer":{"provider":"aws","instance_type":"g5.xlarge","family":"g5","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.006","vcpus":4,"memory_gib":16,"architecture":"x86_64","accelerator":{"name":"A10G","count":1,"memory_gib":24},"price_source":"test","price_as_of":"2026-11-01"},"lease_until":"2026-11-02T23:00:00+00:00","allow_from":"192.0.2.1/32"}','0.1.0');
INSERT INTO "events" VALUES(58,'awsedge',2,1793487600000000,'created','{"provider":"aws","region":"us-east-1","instance_id":"i-awsedge","zone":"us-east-1a"}','0.1.0');
INSERT INTO "events" VALUES(59,'awsedge',3,1793494800000000,'reached','{"host":"198.51.100.3","zone":"us-east-1a"}','0.1.0');
INSERT INTO "events" VALUES(60,'awsedge',4,1793494800000000,'synced','{"files":1,"bytes":5}','0.1.0');
INSERT INTO "events" VALUES(61,'awsedge',5,1793494800000000,'started','{}','0.1.0');
INSERT INTO "events" VALUES(62,'awsedge',6,1793494800000000,'finished','{"phase":"finished","reason":"succeeded","exit_code":0,"started_epoch":1793487630.0,"job_started_epoch":1793487660.0,"finished_epoch":1793494660.0}','0.1.0');
INSERT INTO "events" VALUES(63,'awsedge',7,1793494800000000,'ending','{"reason":"succeeded","by":"client"}','0.1.0');
INSERT INTO "events" VALUES(64,'awsedge',8,1793494800000000,'confirmed','{"state":"terminated","by":"client","reason":"succeeded"}','0.1.0');
INSERT INTO "events" VALUES(65,'awsedge',9,1793494800000000,'closed','{"reason":"succeeded","ended_by":"client","metered_seconds":7200.0,"metered_cost_usd":"2.000000001","receipt":{"run_id":"awsedge","instance":{"provider":"aws","region":"us-east-1","instance_id":"i-awsedge"},"instance_type":"g5.xlarge","layers":[],"reason":"succeeded","ended_by":"client","requested_at":"2026-11-01T01:00:00+00:00","confirmed_state":"terminated","confirmed_at":"2026-11-01T01:00:00+00:00","provider_reason":"","left_behind":[],"metered_seconds":7200.0,"metered_cost_usd":"2.000000001","metered_at_most":false}}','0.1.0');
INSERT INTO "events" VALUES(66,'awsspot',0,1793696400000000,'intended','{"name":"evaluate","owner":"Ann@desk","client":"laptop","spec":{"name":"evaluate","argv":["train.py"],"workdir":"/w","setup":"","env_names":[],"env_file":null,"outputs":[],"processes":0,"python":"","max_cost_usd":null,"max_duration_seconds":null,"idle_seconds":null,"grace_seconds":30.0,"auto_shutdown":true,"bucket":"","tags":{}},"identity":{"provider":"aws","account":"123456789012","principal":"me","source":""},"options":[{"offer":{"provider":"aws","instance_type":"g5.xlarge","family":"g5","region":"us-east-1","zone":null,"purchase_option":"spot","price_usd_per_hour":"1.006","vcpus":4,"memory_gib":16,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-11-01"},"lease":{"lifetime_seconds":3541577.3,"worst_cost_usd":"999.999984","usd_per_hour":"1.016479","limited_by":"--max-cost $1,000"},"disk_gib":50,"extras_usd_per_hour":"0"}],"estimate":null,"workload":{"key":"","steps":null}}','0.1.0');
INSERT INTO "events" VALUES(67,'awsspot',1,1793696400000000,'attempted','{"attempt":1,"token":"awsspot-1","option":0,"zone":"us-east-1a","offer":{"provider":"aws","instance_type":"g5.xlarge","family":"g5","region":"us-east-1","zone":null,"purchase_option":"spot","price_usd_per_hour":"1.006","vcpus":4,"memory_gib":16,"architecture":"x86_64","accelerator":null,"price_source":"test","price_as_of":"2026-11-01"},"lease_until":"2026-11-05T09:00:00+00:00","allow_from":"192.0.2.1/32"}','0.1.0');
INSERT INTO "events" VALUES(68,'awsspot',2,1793696400000000,'created','{"provider":"aws","region":"us-east-1","instance_id":"i-awsspot","zone":"us-east-1a"}','0.1.0');
INSERT INTO "events" VALUES(69,'awsspot',3,1793700000000000,'ending','{"reason":"succeeded","by":"client"}','0.1.0');
INSERT INTO "events" VALUES(70,'awsspot',4,1793700000000000,'confirmed','{"state":"terminated","by":"client","reason":"succeeded"}','0.1.0');
INSERT INTO "events" VALUES(71,'awsspot',5,1793700000000000,'closed','{"reason":"succeeded","ended_by":"client","metered_seconds":3600.0,"metered_cost_usd":"0.75","receipt":{"run_id":"awsspot","instance":{"provider":"aws","region":"us-east-1","instance_id":"i-awsspot"},"instance_type":"g5.xlarge","layers":[],"reason":"succeeded","ended_by":"client","requested_at":"2026-11-03T10:00:00+00:00","confirmed_state":"terminated","confirmed_at":"2026-11-03T10:00:00+00:00","provider_reason":"","left_behind":[],"metered_seconds":3600.0,"metered_cost_usd":"0.75","metered_at_most":false}}','0.1.0');
INSERT INTO "events" VALUES(72,'awsidle',0,1793782800000000,'intended','{"name":"train","owner":"ann@laptop","client":"laptop","spec":{"name":"train","argv":["train.py"],"workdir":"/w","setup":"","env_names":[],"env_file":null,"outputs":[],"processes":0,"python":"","max_cost_usd":null,"max_duration_seconds":null,"idle_seconds":null,"grace_seconds":30.0,"auto_shutdown":true,"bucket":"","tags":{"team":"nlp"}},"identity":{"provider":"aws","account":"123456789012","principal":"me","source":""},"options":[{"offer":{"provider":"aws","instance_type":"g5.xlarge","family":"g5","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.006","vcpus":4,"memory_gib":16,"architecture":"x86_64","accelerator":{"name":"A10G","count":1,"memory_gib":24},"price_source":"test","price_as_of":"2026-11-01"},"lease":{"lifetime_seconds":3522586.2,"worst_cost_usd":"999.999997","usd_per_hour":"1.021959","limited_by":"--max-cost $1,000"},"disk_gib":50,"extras_usd_per_hour":"0"}],"estimate":null,"workload":{"key":"","steps":null}}','0.1.0');
INSERT INTO "events" VALUES(73,'awsidle',1,1793782800000000,'attempted','{"attempt":1,"token":"awsidle-1","option":0,"zone":"us-east-1a","offer":{"provider":"aws","instance_type":"g5.xlarge","family":"g5","region":"us-east-1","zone":null,"purchase_option":"on_demand","price_usd_per_hour":"1.006","vcpus":4,"memory_gib":16,"architecture":"x86_64","accelerator":{"name":"A10G","count":1,"memory_gib":24},"price_source":"test","price_as_of":"2026-11-01"},"lease_until":"2026-11-06T09:00:00+00:00","allow_from":"192.0.2.1/32"}','0.1.0');
INSERT INTO "events" VALUES(74,'awsidle',2,1793782800000000,'created','{"provider":"aws","region":"us-east-1","instance_id":"i-awsidle","zone":"us-east-1a"}','0.1.0');
INSERT INTO "events" VALUES(75,'awsidle',3,1793786400000000,'ending','{"reason":"idle","by":"client"}','0.1.0');
INSERT INTO "events" VALUES(76,'awsidle',4,1793786400000000,'confirmed','{"state":"terminated","by":"client","reason":"idle"}','0.1.0');
INSERT INTO "events" VALUES(77,'awsidle',5,1793786400000000,'closed','{"reason":"idle","ended_by":"client","metered_seconds":3600.0,"metered_cost_usd":"160.25","receipt":{"run_id":"awsidle","instance":{"provider":"aws","region":"us-east-1","instance_id":"i-awsidle"},"instance_type":"g5.xlarge","layers":[],"reason":"idle","ended_by":"client","requested_at":"2026-11-04T10:00:00+00:00","confirmed_state":"terminated","confirmed_at":"2026-11-04T10:00:00+00:00","provider_reason":"","left_behind":[],"metered_seconds":3600.0,"metered_cost_usd":"160.25","metered_at_most":false}}','0.1.0');
CREATE TABLE migrations (
	name TEXT NOT NULL, 
	at_us BIGINT NOT NULL, 
	writer TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "migrations" VALUES('runs-and-events',1793350800000000,'0.1.0');
INSERT INTO "migrations" VALUES('budgets-and-outcomes',1793350800000000,'0.1.0');
CREATE TABLE outcomes (
	run INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	workload TEXT NOT NULL, 
	provider TEXT NOT NULL, 
	instance_type TEXT NOT NULL, 
	purchase_option TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	job_seconds DOUBLE, 
	steps DOUBLE, 
	estimated_job_seconds DOUBLE, 
	estimated_seconds DOUBLE, 
	estimated_seconds_low DOUBLE, 
	estimated_seconds_high DOUBLE, 
	estimated_nano_usd BIGINT, 
	estimated_nano_usd_low BIGINT, 
	estimated_nano_usd_high BIGINT, 
	PRIMARY KEY (run), 
	FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "outcomes" VALUES(1,1793351412031250,'w-train','fake','f1.gpu','on_demand','succeeded',NULL,1000.0,640.0,700.0,560.0,840.0,194400000,155520000,233280000);
INSERT INTO "outcomes" VALUES(2,1793437807031250,'','fake','f1.gpu','on_demand','job_failed',600.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "outcomes" VALUES(3,1793480409031250,'','fake','f1.gpu','on_demand','cancelled',2.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "outcomes" VALUES(4,1793524207031250,'','fake','f1.gpu','on_demand','succeeded',600.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "outcomes" VALUES(6,1793494800000000,'w-aws','aws','g5.xlarge','on_demand','succeeded',7000.0,10.0,6900.0,7000.0,6500.0,7500.0,1900000000,1700000000,2100000000);
CREATE TABLE run_tags (
	run BIGINT NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (run, "key"), 
	FOREIGN KEY(run) REFERENCES runs (run)
)
 WITHOUT ROWID

;
INSERT INTO "run_tags" VALUES(5,'paper','p1');
INSERT INTO "run_tags" VALUES(1,'team','nlp');
INSERT INTO "run_tags" VALUES(5,'team','nlp');
INSERT INTO "run_tags" VALUES(6,'team','nlp');
INSERT INTO "run_tags" VALUES(8,'team','nlp');
INSERT INTO "run_tags" VALUES(2,'team','vision');
CREATE TABLE runs (
	run INTEGER NOT NULL, 
	run_id TEXT NOT NULL, 
	at_us BIGINT NOT NULL, 
	name TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	PRIMARY KEY (run), 
	CONSTRAINT runs_run_id UNIQUE (run_id)
);
INSERT INTO "runs" VALUES(1,'run0succeeded',1793350800000000,'train','ann@laptop');
INSERT INTO "runs" VALUES(2,'run1failed',1793437200000000,'train','bob@desk');
INSERT INTO "runs" VALUES(3,'run2cancelled',1793480400000000,'evaluate','ann@laptop');
INSERT INTO "runs" VALUES(4,'run3moved',1793523600000000,'train','ann@laptop');
INSERT INTO "runs" VALUES(5,'run4open',1795251600000000,'finetune','ann@laptop');
INSERT INTO "runs" VALUES(6,'awsedge',1793487600000000,'train','ann@laptop');
INSERT INTO "runs" VALUES(7,'awsspot',1793696400000000,'evaluate','Ann@desk');
INSERT INTO "runs" VALUES(8,'awsidle',1793782800000000,'train','ann@laptop');
CREATE TABLE sightings (
	id INTEGER NOT NULL, 
	at_us BIGINT NOT NULL, 
	provider TEXT NOT NULL, 
	region TEXT NOT NULL, 
	instance_id TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	instance_type TEXT NOT NULL, 
	purchase_option TEXT NOT NULL, 
	tags TEXT NOT NULL, 
	started_us BIGINT NOT NULL, 
	nano_usd_per_hour BIGINT, 
	PRIMARY KEY (id)
);
INSERT INTO "sightings" VALUES(1,1793959200000000,'aws','us-east-1','i-stranger','elsewhere','probe','eve@tower','g5.xlarge','spot','{"costgpu:run": "elsewhere", "team": "nlp"}',1793955600000000,402400000);
INSERT INTO "sightings" VALUES(2,1793959200000000,'aws','us-east-1','i-noprice','elsewhere','','','g5.xlarge','spot','{"costgpu:run": "elsewhere", "team": "nlp"}',1793955600000000,NULL);
INSERT INTO "sightings" VALUES(3,1793966400000000,'aws','us-east-1','i-stranger','elsewhere','probe','eve@tower','g5.xlarge','spot','{"costgpu:run": "elsewhere", "team": "nlp"}',1793955600000000,402400000);
CREATE INDEX runs_name ON runs (name, run);
CREATE INDEX run_tags_key_value ON run_tags ("key", value, run);
CREATE INDEX closings_ended ON closings (ended_us);
CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER migrations_no_update BEFORE UPDATE ON migrations BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER migrations_no_delete BEFORE DELETE ON migrations BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER runs_no_update BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER runs_no_delete BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER closings_no_update BEFORE UPDATE ON closings BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER closings_no_delete BEFORE DELETE ON closings BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER run_tags_no_update BEFORE UPDATE ON run_tags BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER run_tags_no_delete BEFORE DELETE ON run_tags BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE INDEX billed_period ON billed (start_us);
CREATE INDEX billed_run ON billed (run_id);
CREATE INDEX budgets_name ON budgets (name, id);
CREATE INDEX estimates_workload ON estimates (workload, id);
CREATE INDEX sightings_machine ON sightings (provider, instance_id, id);
CREATE INDEX sightings_at ON sightings (at_us);
CREATE INDEX outcomes_workload ON outcomes (workload, provider, instance_type, run);
CREATE TRIGGER billed_no_update BEFORE UPDATE ON billed BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER billed_no_delete BEFORE DELETE ON billed BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER budgets_no_update BEFORE UPDATE ON budgets BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER budgets_no_delete BEFORE DELETE ON budgets BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER estimates_no_update BEFORE UPDATE ON estimates BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER estimates_no_delete BEFORE DELETE ON estimates BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER sightings_no_update BEFORE UPDATE ON sightings BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER sightings_no_delete BEFORE DELETE ON sightings BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER alerts_no_update BEFORE UPDATE ON alerts BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER alerts_no_delete BEFORE DELETE ON alerts BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER outcomes_no_update BEFORE UPDATE ON outcomes BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER outcomes_no_delete BEFORE DELETE ON outcomes BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER alert_attempts_no_update BEFORE UPDATE ON alert_attempts BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER alert_attempts_no_delete BEFORE DELETE ON alert_attempts BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER alert_results_no_update BEFORE UPDATE ON alert_results BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER alert_results_no_delete BEFORE DELETE ON alert_results BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
COMMIT;
