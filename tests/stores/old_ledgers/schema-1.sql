BEGIN TRANSACTION;
CREATE TABLE attempts (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            number BIGINT NOT NULL,
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            outcome TEXT NOT NULL,
            status BIGINT NOT NULL,
            code TEXT NOT NULL,
            measure TEXT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            cache_write BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT,
            price TEXT NOT NULL,
            began_ms BIGINT NOT NULL,
            first_event_ms BIGINT,
            duration_ms BIGINT NOT NULL,
            events BIGINT NOT NULL,
            PRIMARY KEY (call, number)
        ) WITHOUT ROWID
        ;
INSERT INTO "attempts" VALUES(1,0,'openai','gpt','completed',200,'','reported',10,5,0,0,0,1000,'configured',1,20,100,9);
INSERT INTO "attempts" VALUES(2,0,'groq','llama','failed',200,'','reported',10,1,0,0,0,300,'configured',1,20,100,9);
INSERT INTO "attempts" VALUES(2,1,'openai','gpt','completed',200,'','reported',20,7,0,0,0,2000,'configured',1,20,100,9);
INSERT INTO "attempts" VALUES(3,0,'groq','llama','truncated',200,'','reported',30,3,0,0,0,NULL,'configured',1,20,100,9);
INSERT INTO "attempts" VALUES(4,0,'openai','gpt','completed',200,'','reported',40,11,0,0,0,4000,'configured',1,20,100,9);
CREATE TABLE call_repairs (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            code TEXT NOT NULL,
            count BIGINT NOT NULL,
            PRIMARY KEY (call, code)
        ) WITHOUT ROWID
        ;
INSERT INTO "call_repairs" VALUES(2,'no-done',2);
CREATE TABLE call_tags (
            call BIGINT NOT NULL REFERENCES calls (place) ON DELETE CASCADE,
            name TEXT NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (call, name)
        ) WITHOUT ROWID
        ;
INSERT INTO "call_tags" VALUES(3,'team','ads');
INSERT INTO "call_tags" VALUES(1,'team','search');
CREATE TABLE calls (
            place INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            at_ms BIGINT NOT NULL,
            settled_ms BIGINT NOT NULL,
            key TEXT NOT NULL,
            surface TEXT NOT NULL,
            model TEXT NOT NULL,
            stream BIGINT NOT NULL,
            outcome TEXT NOT NULL,
            status BIGINT NOT NULL,
            code TEXT NOT NULL,
            first_event_ms BIGINT,
            duration_ms BIGINT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            cache_write BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            unpriced BIGINT NOT NULL,
            measure TEXT NOT NULL,
            repairs TEXT NOT NULL,
            tags TEXT NOT NULL,
            end_user TEXT NOT NULL
        );
INSERT INTO "calls" VALUES(1,'call_1',1790043200000,1790043200120,'key_a','chat','smart',1,'completed',200,'',21,120,10,5,0,0,0,1000,0,'reported','{}','{"team":"search"}','');
INSERT INTO "calls" VALUES(2,'call_2',1790086400000,1790086400120,'key_a','chat','smart',1,'completed',200,'',21,120,30,8,0,0,0,2300,0,'reported','{"no-done":2}','{}','');
INSERT INTO "calls" VALUES(3,'call_3',1790129600000,1790129600120,'key_b','chat','smart',1,'truncated',200,'',21,120,30,3,0,0,0,0,1,'reported','{}','{"team":"ads"}','');
INSERT INTO "calls" VALUES(4,'call_4',1790172800000,1790172800120,'key_b','chat','smart',1,'completed',200,'',21,120,40,11,0,0,0,4000,0,'reported','{}','{}','somebody');
CREATE TABLE keys (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            digest TEXT NOT NULL,
            hint TEXT NOT NULL,
            created_ms BIGINT NOT NULL,
            budget BIGINT,
            period TEXT NOT NULL,
            requests_per_minute BIGINT,
            tokens_per_minute BIGINT,
            concurrent BIGINT,
            models TEXT NOT NULL,
            tags TEXT NOT NULL,
            expires_ms BIGINT,
            revoked_ms BIGINT,
            replaced_by TEXT NOT NULL
        );
INSERT INTO "keys" VALUES('key_a','Search','000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f','wxyz',5,10000000000,'total',NULL,NULL,NULL,'[]','{}',NULL,NULL,'');
CREATE TABLE meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
INSERT INTO "meta" VALUES('schema',1);
INSERT INTO "meta" VALUES('keys',1);
INSERT INTO "meta" VALUES('kept',0);
CREATE INDEX calls_by_time ON calls (at_ms, place);
CREATE INDEX calls_by_key ON calls (key, at_ms, place, cost);
CREATE INDEX calls_by_model ON calls (model, at_ms, place);
CREATE INDEX calls_by_outcome ON calls (outcome, at_ms, place);
CREATE INDEX calls_by_settling ON calls (key, settled_ms, id);
CREATE INDEX attempts_by_provider ON attempts (provider, call);
CREATE INDEX call_tags_by_name ON call_tags (name, value, call);
CREATE INDEX call_repairs_by_code ON call_repairs (code, call);
CREATE TRIGGER calls_stay BEFORE UPDATE ON calls BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER calls_remain BEFORE DELETE ON calls WHEN NOT (OLD.settled_ms < (SELECT value FROM meta WHERE name = 'kept')) BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER attempts_stay BEFORE UPDATE ON attempts BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER attempts_remain BEFORE DELETE ON attempts WHEN NOT (NOT EXISTS (SELECT 1 FROM calls WHERE place = OLD.call)) BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER call_tags_stay BEFORE UPDATE ON call_tags BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER call_tags_remain BEFORE DELETE ON call_tags WHEN NOT (NOT EXISTS (SELECT 1 FROM calls WHERE place = OLD.call)) BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER call_repairs_stay BEFORE UPDATE ON call_repairs BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
CREATE TRIGGER call_repairs_remain BEFORE DELETE ON call_repairs WHEN NOT (NOT EXISTS (SELECT 1 FROM calls WHERE place = OLD.call)) BEGIN SELECT RAISE(ABORT, 'entries are neither changed nor removed'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('calls',4);
COMMIT;
